"""One conversation of an editor: where it works, what its user chose, and the turn under way.

Owns the viewer of each turn: entries go out as lines, questions as requests for permission. A turn belongs to the
journal; when the editor goes away it is left as it is, and a session that is loaded again shows it from the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from typing import Final

import msgspec
from acp.schema import SessionConfigOptionSelect, SessionConfigSelectOption, SessionMode, SessionModeState

from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import App
from tailrace.app.app import SessionTools
from tailrace.app.costs import Costs
from tailrace.app.housekeeping import EDITOR_SESSIONS
from tailrace.app.models import named
from tailrace.config.load import Config
from tailrace.config.presets import provider_dialects
from tailrace.errors import ConfigError, RunSealed, SteerRefused, TailraceError
from tailrace.events import ApprovalAsked
from tailrace.integrations.acp.editor import Editor
from tailrace.integrations.acp.editor_tools import editor_tools
from tailrace.integrations.acp.log_to_updates import LogToUpdates, update_line
from tailrace.integrations.acp.mcp_servers import GivenServer, SessionServers
from tailrace.integrations.acp.questions_elsewhere import REQUESTER
from tailrace.journal.key_values import KeyValues
from tailrace.messages import Message
from tailrace.ports import ENDED, Journal, Run
from tailrace.runs.recovery import follow
from tailrace.runs.signals import FlatTaskGroup, Stopped, run_beside
from tailrace.server.frontends.client_thread import branch_turns
from tailrace.tools.typed import preview_line

log = logging.getLogger("tailrace.integrations.acp")
_PAGE = 50

YOLO: Final = "yolo"
MODE: Final = "mode"  # ids of the options
MODEL: Final = "model"
_MODES: Final = {
    "ask": ("Ask", "Dangerous actions are asked about first."),
    "deny": ("Deny", "Dangerous actions are refused (approvals.mode: deny)."),
    YOLO: ("Yolo", "Approves without asking. What is never allowed stays forbidden."),
}


def mode_ids(config: Config) -> list[str]:
    """The modes that a session can have, the configured one first."""
    return [YOLO] if config.yolo else [config.approvals.mode, YOLO]


def mode_state(config: Config, current: str) -> SessionModeState:
    modes = [SessionMode(id=mode, name=_MODES[mode][0], description=_MODES[mode][1]) for mode in mode_ids(config)]
    return SessionModeState(current_mode_id=current, available_modes=modes)


def config_options(
    config: Config, mode: str, model: str, models: Sequence[tuple[str, str]]
) -> list[SessionConfigOptionSelect]:
    """`models` are pairs of a provider and one of its models."""
    names = dict.fromkeys([model, *(f"{provider}/{name}" for provider, name in models)])
    return [
        SessionConfigOptionSelect(
            type="select",
            id=MODE,
            name="Approvals",
            category="mode",
            current_value=mode,
            options=[
                SessionConfigSelectOption(value=each, name=_MODES[each][0], description=_MODES[each][1])
                for each in mode_ids(config)
            ],
        ),
        SessionConfigOptionSelect(
            type="select",
            id=MODEL,
            name="Model",
            category="model",
            current_value=model,
            options=[SessionConfigSelectOption(value=name, name=name) for name in names],
        ),
    ]


class StoredSession(msgspec.Struct, frozen=True):
    """What is kept of a session beside its runs. `at` is the wall clock of its last prompt."""

    directory: str
    mode: str = ""
    model: str = ""
    title: str = ""
    at: float = 0.0


def stored_sessions(journal: Journal) -> KeyValues[StoredSession]:
    return KeyValues(journal, EDITOR_SESSIONS, StoredSession)


class EditorSession:
    """`close` must be called."""

    def __init__(
        self, app: App, editor: Editor, session_id: str, stored: StoredSession, servers: Sequence[GivenServer]
    ) -> None:
        self.id = session_id
        self.stored = stored
        self._app = app
        self._editor = editor
        self._servers = SessionServers(servers, app.config.environment.without(app.secrets))
        self._watching: asyncio.Task[None] | None = None  # of a turn that was under way when the session was loaded
        self._loaded_run = ""
        self._turn = asyncio.Lock()  # one prompt at a time
        self._cancels: set[asyncio.Event] = set()  # one for each prompt that waits or runs
        self._under_way: tuple[str, asyncio.Future[LogToUpdates]] | None = None  # the turn of a prompt, and its end

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
        self._app.session_tools.pop(self.id, None)
        await self._servers.close()

    @property
    def busy(self) -> bool:
        """Whether a prompt of this editor is under way, or the session is being shown."""
        return self._turn.locked()

    # ── turns ────────────────────────────────────────────────────────────────────────────────────────────────

    async def prompt(self, message: Message, at: float, cancelled: asyncio.Event) -> LogToUpdates | None:
        """Runs a turn to its end and shows it; None where it was `cancelled` before it began. `at` is the wall clock. A
        prompt during a turn is a message for it, and ends with it. Raises `TailraceError`."""
        self._cancels.add(cancelled)
        try:
            if self._under_way is not None:
                steered = await self._steer(message, *self._under_way, cancelled)
                if steered is not None:
                    return steered
            async with AsyncExitStack() as turn:
                await run_beside(turn.enter_async_context(self._turn), stopped_when(cancelled))
                await run_beside(self._prepare(message, at), stopped_when(cancelled))
                return await self._take_turn(message, cancelled)
        except Stopped:
            return None
        finally:
            self._cancels.discard(cancelled)

    async def _prepare(self, message: Message, at: float) -> None:
        """What may take long: a model that is loaded, servers that do not answer."""
        await self._app.models.make_ready(named(self._app.config, self.stored.model))
        await self._note_prompt(message, at)
        await self._equip()

    async def _take_turn(self, message: Message, cancelled: asyncio.Event) -> LogToUpdates:
        run = await self._app.agents.submit(self._spec(message), session=self.id)
        updates = self._updates(run)
        ended: asyncio.Future[LogToUpdates] = asyncio.get_running_loop().create_future()
        self._under_way = run.id, ended
        try:
            await run_beside(self._show_turn(run.id, updates, cancelled), self._stop_when(cancelled, run.id))
        finally:
            self._under_way = None
            ended.set_result(updates)
        return updates

    async def _steer(
        self, message: Message, run_id: str, ended: asyncio.Future[LogToUpdates], cancelled: asyncio.Event
    ) -> LogToUpdates | None:
        """The turn that took the message, at its end; None where the message begins a turn of its own. Raises
        `Stopped`."""
        steering = self._app.steering
        try:
            steer = await steering.steer(run_id, message, by=REQUESTER)
        except SteerRefused:
            return None
        steer_id = steer.accepted.steer_id
        try:
            updates = await run_beside(_end_of(ended), stopped_when(cancelled))
        except Stopped:
            with suppress(SteerRefused):  # the model has it already
                await steering.take_back(run_id, steer_id, by=REQUESTER)
            raise
        fates = {each.accepted.steer_id: each for each in await steering.list(run_id)}
        reason = fates[steer_id].reason
        if reason == "taken_back" or (reason is not None and cancelled.is_set()):
            raise Stopped
        return updates if reason is None else None

    async def _show_turn(self, run_id: str, updates: LogToUpdates, cancelled: asyncio.Event) -> None:
        for problem in self._servers.take_problems():
            await self._editor.write(updates.notice(problem))
        if self._watching is not None:  # the turn before comes first
            with suppress(Stopped):
                await run_beside(_ended(self._watching), stopped_when(cancelled))
        await self._watch(run_id, updates)

    async def _stop_when(self, cancelled: asyncio.Event, run_id: str) -> None:
        await cancelled.wait()
        await self._stop(run_id)

    def _spec(self, message: Message) -> TurnSpec:
        return TurnSpec(
            message,
            model=self.stored.model,
            directory=self.stored.directory,
            requester=REQUESTER,
            reachable=True,
            yolo=self.stored.mode == YOLO,
            busy="queue",  # a turn that was cut goes on first
        )

    async def cancel(self) -> None:
        """Stops the turn under way, also one that has not begun."""
        for cancelled in self._cancels:
            cancelled.set()
        if self._loaded_run:
            await self._stop(self._loaded_run)

    async def _stop(self, run_id: str) -> None:
        await self._app.agents.stop(run_id, by=REQUESTER)

    async def _equip(self) -> None:
        instead = editor_tools(self._editor, self.id)
        self._app.session_tools[self.id] = SessionTools(instead, await self._servers.tools())

    # ── what was said before ─────────────────────────────────────────────────────────────────────────────────

    async def replay(self) -> None:
        """Shows the whole conversation. A turn that has not ended is shown as far as it is, and then live; where its
        process is gone, this one goes on with it."""
        async with self._turn:
            runs = await branch_turns(self._app.journal, self.id)
            ended = [run for run in runs if run.state in ENDED]
            for start in range(0, len(ended), _PAGE):
                page = ended[start : start + _PAGE]
                logs = await self._app.journal.facts_of_runs([run.id for run in page])
                for run, facts in zip(page, logs, strict=True):
                    updates = self._updates(run, loaded=True)
                    await self._editor.write(updates.feed(facts))
            await self._join([run for run in runs if run.state not in ENDED], shown=False)

    async def resume(self) -> None:
        """Goes on without showing what was said; a turn that has not ended is shown from here on."""
        async with self._turn:
            runs = await branch_turns(self._app.journal, self.id)
            await self._join([run for run in runs if run.state not in ENDED], shown=True)

    async def _join(self, unfinished: Sequence[Run], *, shown: bool) -> None:
        if not unfinished:
            return
        await self._equip()
        await self._app.agents.recover(session=self.id)
        joined: list[tuple[str, LogToUpdates, int]] = []
        for run in unfinished:
            updates = self._updates(run, loaded=True)
            entries = await self._app.journal.read(run.id)
            lines = updates.feed(entries)
            if not shown:
                await self._editor.write(lines)
            joined.append((run.id, updates, entries[-1].seq if entries else 0))
        self._watching = asyncio.create_task(self._watch_all(joined))

    async def _watch_all(self, joined: Sequence[tuple[str, LogToUpdates, int]]) -> None:
        try:
            for run_id, updates, seq in joined:
                self._loaded_run = run_id
                # Its process may die while it is watched here: then this one goes on with it.
                taking_over = self._app.agents.see_to_end(run_id)
                try:
                    await run_beside(self._watch(run_id, updates, after=seq), taking_over)
                except TailraceError as exc:  # parked, or the journal is gone
                    await self._editor.write(updates.notice(str(exc)))
        except Exception:  # the top of a task
            log.exception("the turn of session %s is not shown any further", self.id)
        finally:
            self._loaded_run = ""

    # ── the viewer ───────────────────────────────────────────────────────────────────────────────────────────

    def _updates(self, run: Run, *, loaded: bool = False) -> LogToUpdates:
        config = self._app.config
        costs = Costs(config)
        return LogToUpdates(
            self.id,
            run.id,
            directory=str(run.new.input.get("directory") or self.stored.directory),
            loaded=loaded,
            context_tokens=self._context_tokens(str(run.new.input.get("model") or "")),
            cached_apart=[name for name in provider_dialects(config) if costs.counts_cached_beside(name)],
        )

    def _context_tokens(self, model: str) -> int:
        """What the model of a turn reads. The name may be an alias that the config has no more: the turn is shown all
        the same."""
        config = self._app.config
        try:
            return self._app.context_tokens(named(config, model))
        except ConfigError:
            return self._app.context_tokens(config.model)

    async def _watch(self, run_id: str, updates: LogToUpdates, *, after: int = 0) -> None:
        """Shows the log from a cursor to its end. Cancelled, it leaves the run alone. Raises `RunParked`."""
        questions = _Questions(self._app, self._editor, self.id, run_id, updates)
        async with FlatTaskGroup() as group:
            questions.ask_open(group)
            async for batch in follow(self._app.journal, run_id, after=after):
                await self._editor.write(updates.feed(batch))
                questions.ask_open(group)
            questions.cancel_all()

    async def remember(self, **changes: str | float) -> None:
        """Changes what is kept of the session. Before its first prompt there is nothing to find again."""
        self.stored = kept = msgspec.structs.replace(self.stored, **changes)
        if not kept.title:
            return
        await stored_sessions(self._app.journal).update(self.id, lambda _: kept)

    async def _note_prompt(self, message: Message, at: float) -> None:
        """The first question is the session's title, without secrets (J114)."""
        title = self.stored.title or preview_line(self._app.redactor.redact(message.text)) or "untitled"
        if title != self.stored.title:
            await self._editor.write(update_line(self.id, {"sessionUpdate": "session_info_update", "title": title}))
        await self.remember(title=title, at=at)


async def _ended(task: asyncio.Task[None]) -> None:
    await asyncio.wait({task})


async def _end_of(turn: asyncio.Future[LogToUpdates]) -> LogToUpdates:
    return await asyncio.shield(turn)  # others wait for it too


async def stopped_when(cancelled: asyncio.Event) -> None:
    """Raises `Stopped`."""
    await cancelled.wait()
    raise Stopped


class _Questions:
    """The open approvals of one turn, each asked in the editor once, for as long as the log has no answer."""

    def __init__(self, app: App, editor: Editor, session_id: str, run_id: str, updates: LogToUpdates) -> None:
        self._app = app
        self._editor = editor
        self._session_id = session_id
        self._run_id = run_id
        self._updates = updates
        self._asking: dict[str, asyncio.Task[None]] = {}

    def ask_open(self, group: asyncio.TaskGroup) -> None:
        """Asks new questions, and cancels those that have an answer, from any surface or by timeout."""
        questions = self._updates.questions
        for approval_id in self._asking.keys() - questions.keys():
            self._asking.pop(approval_id).cancel()
        for approval_id, asked in questions.items():
            if approval_id not in self._asking and asked.requester == REQUESTER:
                self._asking[approval_id] = group.create_task(self._ask(asked))

    def cancel_all(self) -> None:
        for task in self._asking.values():
            task.cancel()

    async def _ask(self, asked: ApprovalAsked) -> None:
        call = self._updates.call_of(asked)
        if call is None:
            return
        decision = await self._editor.ask_permission(self._session_id, call)
        try:
            await self._app.agents.answer(self._run_id, asked.approval_id, decision or "deny", by=REQUESTER)
        except RunSealed:
            return  # it ended meanwhile
        except TailraceError as exc:
            log.warning("an approval cannot be answered: %s", exc)
