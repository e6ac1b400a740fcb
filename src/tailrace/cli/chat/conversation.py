"""The user's conversation with the agent: its session, its model, its switches.

Owns the current session; starts turns and finds earlier ones. Knows no screen.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import msgspec

from tailrace.agent.context import SUMMARY_PROMPT, with_summary
from tailrace.agent.session import TURN_KIND, Branch, history_of, new_session
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import App
from tailrace.app.models import LOCAL, chosen, default_model, is_known, named
from tailrace.app.timeline.question import question_of
from tailrace.app.usage.spending import no_spending, spent_in
from tailrace.cli.chat.options import REQUESTER, Options
from tailrace.cli.chat.question import CommandOutput, Question, composed
from tailrace.cli.screen.input.choice_list import Choice
from tailrace.cli.screen.sanitize import sanitized_line
from tailrace.config.sections import ModelChoice
from tailrace.errors import RunParked, TailraceError
from tailrace.events.speakers import SpokenBy
from tailrace.messages import Message, user
from tailrace.ports import ENDED, Journal, Run, RunState
from tailrace.providers.prices import context_window, prices_are_loaded

_RUNNING: tuple[RunState, ...] = ("running",)
_LISTED_RUNS = 500  # how far back the list of sessions reaches
COMPACT = "/compact"  # what a run is shown as that summarises the session


def turn_of(options: Options, question: Question | str) -> TurnSpec:
    asked = question if isinstance(question, Question) else Question(user(question))
    return TurnSpec(
        asked.message,
        shown=asked.shown,
        model=options.model,
        requester=REQUESTER,
        yolo=options.yolo,
        checkpoints=options.checkpoints or "auto",
        plan=options.plan,
        max_turns=options.max_turns,
    )


class SessionSummary(msgspec.Struct, frozen=True):
    """An earlier conversation, in one line. `unfinished` is its run that has not ended; `taken_over`: another process
    goes on with it."""

    id: str
    question: str
    turns: int
    at: float
    unfinished: Run | None = None
    taken_over: bool = False
    is_own: bool = True  # of a terminal, not of a chat, the page or a program

    def as_choice(self, now: float) -> Choice:
        turns = f"{self.turns} turn" + ("s" if self.turns != 1 else "")
        state = " · not finished" if self.unfinished else ""
        source = "" if self.is_own else f" · {sanitized_line(self.id, 40)}"
        return Choice(self.id, sanitized_line(self.question, 60), f"{age(now - self.at)} · {turns}{state}{source}")


def age(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f}{unit} ago"
    return "just now"


def sessions_of(runs: Sequence[Run]) -> list[SessionSummary]:
    """Runs, newest first, grouped by session."""
    by_session: dict[str, list[Run]] = {}
    for run in runs:
        if run.new.session:
            by_session.setdefault(run.new.session, []).append(run)
    return [
        SessionSummary(
            name,
            question_of(own[-1]),
            len(own),
            own[0].created_at,
            next((run for run in own if run.state not in ENDED), None),
            is_own=own[-1].new.input.get("requester") == REQUESTER,
        )
        for name, own in by_session.items()
    ]


async def is_new_session(journal: Journal, session: str) -> bool:
    """Whether nothing was ever asked under this name, or all of it is deleted."""
    return not await journal.runs(session=session, limit=1)


class Conversation:
    """One user's conversation. `options` hold the switches; the session changes with `/new` and `/resume`."""

    def __init__(self, app: App, options: Options) -> None:
        self.app = app
        self.options = msgspec.structs.replace(options, session=options.session or new_session())
        self.resumed = bool(options.session)
        self.verbose = False  # all of each call of a tool is shown
        self.outputs: list[CommandOutput] = []  # of commands that the user ran: the next question takes them along
        self.spending = no_spending(app.config)

    @property
    def session(self) -> str:
        return self.options.session

    @property
    def choice(self) -> ModelChoice:
        return named(self.app.config, self.options.model)

    def switch(self, **changes: bool | str) -> None:
        if changes.get("session", self.session) != self.session:
            self.outputs.clear()  # they belong to the session that they were run in
        self.options = msgspec.structs.replace(self.options, **changes)

    async def approve_all(self, *, on: bool) -> None:
        """Also the calls to come of the turn under way."""
        self.switch(yolo=on)
        for run in await self.app.journal.runs(session=self.session, kind=TURN_KIND, states=_RUNNING):
            self.app.approve_all(run.id, on=on)

    def is_to_load(self, name: str) -> bool:
        """Whether this model is the embedded one, and does not run yet. Raises `TailraceError`."""
        return named(self.app.config, self._full_name(name)).provider == LOCAL and self.app.models.local.pid is None

    async def use_model(self, name: str) -> None:
        """Raises `TailraceError` where the model cannot be called; the current model then stays."""
        name = self._full_name(name)
        await self.app.models.make_ready(named(self.app.config, name))
        self.switch(model=name)

    def _full_name(self, name: str) -> str:
        """`<provider>/<model>` of what was typed, as `--model` understands it: a provider alone is its own model, where
        it has one, and any other bare name a model of the configured provider."""
        config = self.app.config
        if len(name.split()) != 1:
            raise TailraceError(f"a model's name has no blanks, found {name[:80]!r}: /model <provider>/<model>")
        if not is_known(config, name):
            choice = chosen(config, None, name)
            return f"{choice.provider}/{choice.name}"
        if (model := default_model(config, name)) is None:
            raise TailraceError(f"which model of {name}? /model {name}/MODEL")
        return f"{name}/{model}"

    # ── what it costs ────────────────────────────────────────────────────────────────────────────────────────

    @property
    def context_window(self) -> int | None:
        """How many tokens the model takes, where that is known."""
        if self.choice.provider == LOCAL:
            return self.app.models.local.context_tokens
        return context_window(self.choice.name) if prices_are_loaded() else None

    async def count_spending(self) -> None:
        self.spending = await spent_in(self.app, self.session)

    # ── turns ────────────────────────────────────────────────────────────────────────────────────────────────

    def add_output(self, ran: CommandOutput, session: str) -> bool:
        """The next question takes the output along, where it is one of the session that the command was run in."""
        if session != self.session:
            return False
        self.outputs.append(ran)
        return True

    async def compose(self, typed: str, shown: str = "") -> Question:
        """The question with the files that it names and the output of the commands before it."""
        outputs, self.outputs = self.outputs, []
        return await asyncio.to_thread(composed, typed, shown or typed, self.app.directory, outputs)

    def turn(self, question: Question | str) -> TurnSpec:
        return turn_of(self.options, question)

    async def submit(self, spec: TurnSpec) -> Run:
        """Starts this turn; its approvals can be asked for here."""
        return await self.app.agents.submit(msgspec.structs.replace(spec, reachable=True), session=self.session)

    async def prepared(self, spec: TurnSpec) -> TurnSpec:
        """The turn with the summary for its history, where the session was summarised just before."""
        last = next(iter(await self._branch(1)), None)
        if last is None or not _is_summary(last):
            return spec
        _, newest = _newest_exchange(await history_of(self.app.journal, self.session, before=last.id))
        output = last.finished.output if last.finished is not None else ""
        return msgspec.structs.replace(spec, history=with_summary(output, newest), replaces_history=True)

    async def retried(self) -> TurnSpec:
        """The turn of the last question, to be asked again; its answer takes the place of the one before. Raises
        `TailraceError`."""
        last, *before = [*await self._branch(2), None, None][:2]
        if last is None:
            raise TailraceError("there is no question to ask again")
        spec = msgspec.convert(last.new.input, TurnSpec)
        previous_run = before[0].id if before[0] is not None else ""
        again = turn_of(self.options, Question(spec.message, spec.shown))
        return msgspec.structs.replace(
            again,
            previous_run=previous_run,
            history=spec.history,
            replaces_history=spec.replaces_history,
            tools=spec.tools,
            spoken_by=spec.spoken_by,
        )

    async def compacting(self) -> TurnSpec:
        """The turn that summarises the conversation. From the next question on, the summary and the newest exchange
        stand for it. Raises `TailraceError` where there is nothing to summarise."""
        older, _ = _newest_exchange(await history_of(self.app.journal, self.session))
        if not older:
            raise TailraceError("there is nothing to summarise yet: only the newest exchange, which stays as it is")
        spec = turn_of(self.options, Question(user(SUMMARY_PROMPT), COMPACT))
        return msgspec.structs.replace(spec, tools=(), spoken_by=SpokenBy())  # no person says it

    async def _branch(self, count: int) -> list[Run]:
        """The newest turns of the session that count, newest first: not those that another one has replaced."""
        branch = Branch()
        runs = await self.app.journal.runs(session=self.session, kind=TURN_KIND)
        return [run for run in runs if branch.takes(run)][:count]

    async def last_answer(self) -> str:
        """Empty where there is none."""
        finished = (run.finished for run in await self._branch(10))
        return next((end.output for end in finished if end is not None and end.output), "")

    async def stop(self, run_id: str) -> None:
        await self.app.agents.stop(run_id, by=REQUESTER)

    # ── earlier sessions ─────────────────────────────────────────────────────────────────────────────────────

    async def sessions(self) -> list[SessionSummary]:
        """Newest first."""
        return sessions_of(await self.app.journal.runs(kind=TURN_KIND, limit=_LISTED_RUNS))

    async def find(self, word: str) -> SessionSummary:
        """The session whose id begins so. Raises `TailraceError` where there is none."""
        for session in await self.sessions():
            if session.id.startswith(word):
                return session
        raise TailraceError(f"no session {sanitized_line(word, 60)}")

    async def resume(self, session: SessionSummary) -> Run | None:
        """Continues that session. Returns its unfinished run: its owner goes on executing it, or this process takes it
        over where the owner has died."""
        self.switch(session=session.id)
        if session.unfinished is None:
            return None
        await self.app.agents.recover(session=session.id)
        await self.app.agents.take_over(session.unfinished.id)  # also where it was put off for a while
        run = await self.app.journal.get(session.unfinished.id)
        if run.state == "parked":
            raise RunParked(run.parked.message if run.parked else f"run {run.id} is parked")
        return run

    async def resumed_run(self) -> Run | None:
        """The run that is under way in the session that the options name, as of `resume`."""
        found = [session for session in await self.sessions() if session.id == self.session]
        return await self.resume(found[0]) if found else None

    async def turns(self, limit: int) -> list[Run]:
        """The session's latest runs that have ended, oldest first."""
        runs = await self.app.journal.runs(session=self.session, kind=TURN_KIND, limit=limit + 1)
        return [run for run in reversed(runs) if run.state in ENDED][-limit:]

    async def left_behind(self) -> SessionSummary | None:
        """A session whose run was in flight when its terminal died. Another process may have taken the run over."""
        running = await self.app.journal.runs(kind=TURN_KIND, states=_RUNNING)
        orphans = {run.id for run in await self.app.journal.orphans()}
        for run in running:
            taken_over = run.id not in orphans
            is_own = run.claims > 1 and run.new.input.get("requester") == REQUESTER
            if run.new.session and (not taken_over or is_own):
                question = question_of(run)
                return SessionSummary(run.new.session, question, 1, run.created_at, run, taken_over=taken_over)
        return None


def _is_summary(run: Run) -> bool:
    return run.new.input.get("shown") == COMPACT and run.finished is not None and run.finished.status == "completed"


def _newest_exchange(messages: Sequence[Message]) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """What was said before the last question, and what since."""
    at = max((index for index, message in enumerate(messages) if message.role == "user"), default=0)
    return tuple(messages[:at]), tuple(messages[at:])


def now() -> float:
    return time.time()
