"""The user's conversation with the agent: its session, its model, its switches.

Owns the current session; starts turns and finds earlier ones. Knows no screen.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from tailrace.agent.service import TurnSpec
from tailrace.agent.session import TURN_KIND, new_session
from tailrace.app import App
from tailrace.app.models import named
from tailrace.cli.chat.options import REQUESTER, Options, ToolDisplay
from tailrace.cli.screen.sanitize import sanitized_line
from tailrace.config.sections import ModelChoice
from tailrace.errors import ConfigError, RunParked, TailraceError
from tailrace.messages import user
from tailrace.ports import ENDED, Run

_LISTED_RUNS = 500  # how far back the list of sessions reaches


def turn_of(options: Options, question: str) -> TurnSpec:
    return TurnSpec(
        user(question),
        model=options.model,
        requester=REQUESTER,
        yolo=options.yolo,
        checkpoints=options.checkpoints,
        max_turns=options.max_turns,
    )


def question_of(run: Run) -> str:
    """The user's message of that run."""
    try:
        return msgspec.convert(run.new.input, TurnSpec).message.text
    except msgspec.ValidationError:  # written by another version
        return ""


class SessionSummary(msgspec.Struct, frozen=True):
    """An earlier conversation, in one line. `unfinished` is its run that has not ended."""

    id: str
    question: str
    turns: int
    at: float
    unfinished: Run | None = None

    def describe(self, now: float) -> str:
        turns = f"{self.turns} turn" + ("s" if self.turns != 1 else "")
        state = " · not finished" if self.unfinished else ""
        return f"{self.id}  {_age(now - self.at)}  {turns}{state}  {sanitized_line(self.question, 60)}"


def _age(seconds: float) -> str:
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
        )
        for name, own in by_session.items()
    ]


class Conversation:
    """One user's conversation. `options` hold the switches; the session changes with `/new` and `/resume`."""

    def __init__(self, app: App, options: Options) -> None:
        self.app = app
        self.options = msgspec.structs.replace(options, session=options.session or new_session())
        self.resumed = bool(options.session)
        self.tools: ToolDisplay = "lines"

    @property
    def session(self) -> str:
        return self.options.session

    @property
    def choice(self) -> ModelChoice:
        return named(self.app.config, self.options.model)

    def switch(self, **changes: bool | str) -> None:
        self.options = msgspec.structs.replace(self.options, **changes)

    async def use_model(self, name: str) -> None:
        """Raises `TailraceError` where the model cannot be called; the current model then stays."""
        choice = named(self.app.config, name)
        if not choice.name:
            raise ConfigError("expected <provider>/<model>", key="model")
        await self.app.models.make_ready(choice)
        self.switch(model=name)

    async def ask(self, question: str) -> Run:
        spec = msgspec.structs.replace(turn_of(self.options, question), reachable=True)
        return await self.app.agents.submit(spec, session=self.session)

    async def stop(self, run_id: str) -> None:
        await self.app.agents.stop(run_id, by=REQUESTER)

    # ── earlier sessions ─────────────────────────────────────────────────────────────────────────────────────

    async def sessions(self) -> list[SessionSummary]:
        """Newest first."""
        return sessions_of(await self.app.journal.runs(kind=TURN_KIND, limit=_LISTED_RUNS))

    async def find(self, word: str) -> SessionSummary:
        """The session with this id or number in the list; for an empty word, an unfinished one, else the newest other.
        Raises `TailraceError` where there is none."""
        sessions = await self.sessions()
        others = [session for session in sessions if session.id != self.session]
        if not word:
            candidates = [session for session in sessions if session.unfinished] or others
        elif word.isdecimal() and 0 < int(word) <= len(sessions):
            candidates = [sessions[int(word) - 1]]
        else:
            candidates = [session for session in sessions if session.id.startswith(word)]
        if not candidates:
            raise TailraceError(f"no session {sanitized_line(word, 60)}" if word else "no session to resume")
        return candidates[0]

    async def resume(self, session: SessionSummary) -> Run | None:
        """Continues that session. Returns its unfinished run: its owner goes on executing it, or this process takes it
        over where the owner has died."""
        self.switch(session=session.id)
        if session.unfinished is None:
            return None
        await self.app.agents.recover(session=session.id)
        run = await self.app.journal.get(session.unfinished.id)
        if run.state == "parked":
            raise RunParked(run.parked.message if run.parked else f"run {run.id} is parked")
        return run

    async def turns(self, limit: int) -> list[Run]:
        """The session's latest runs that have ended, oldest first."""
        runs = await self.app.journal.runs(session=self.session, kind=TURN_KIND, limit=limit + 1)
        return [run for run in reversed(runs) if run.state in ENDED][-limit:]

    async def left_behind(self) -> SessionSummary | None:
        """A session whose run was in flight when its terminal died."""
        orphans = {run.id for run in await self.app.journal.orphans() if run.new.kind == TURN_KIND and run.new.session}
        if not orphans:
            return None
        for session in await self.sessions():
            if session.unfinished is not None and session.unfinished.id in orphans:
                return session
        return None


def now() -> float:
    return time.time()
