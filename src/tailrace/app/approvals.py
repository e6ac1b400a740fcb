"""What people have approved beyond one call, and the approvals that wait for a person, over all runs and processes.

"always" is kept in the journal, "session" is read from the log. A question is posted right before it is recorded and
taken down once its answer is recorded. The logs decide what is listed: a question that a dead process left posted is
not. One small value changes with the list, so that any process can wait for the next change.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from tailrace.agent.safety.approval import ApprovalMemory
from tailrace.agent.safety.judge import check_patterns
from tailrace.agent.service import AgentService
from tailrace.agent.session import TURN_KIND
from tailrace.config.load import Config
from tailrace.errors import ConfigError, RunNotFound, RunSealed, TailraceError
from tailrace.events import ApprovalAnswered, ApprovalAsked, Decision, Entry
from tailrace.journal.key_values import KeyValues
from tailrace.messages import Value
from tailrace.ports import RUNS_LIMIT, Journal, Run, RunState
from tailrace.runs.charged_to import platform_of

LOOK_AGAIN_S: Final = 30.0  # while something waits: the process that would tell of its end may have died
MAX_TEXT: Final = 2000  # characters that are kept of a command and of a directory
_NAMED: Final = 4  # of several that begin alike
_TOLD_APART: Final = 16  # characters of their ids
_POSTED: Final = "approvals.waiting"  # by approval: the run that asks
_CHANGED: Final = ("approvals", "waiting.changed")  # a new value with each change of the list
_LIVE: Final[Collection[RunState]] = ("pending", "running")


class AlwaysApproval(Value):
    """One approval that holds until it is taken back. `id` is the digest that it is bound to; the texts are those that
    the person was shown, cut at `MAX_TEXT`."""

    id: str
    tool_name: str = ""
    command: str = ""
    directory: str = ""
    requester: str = ""
    by: str = ""
    run_id: str = ""
    at: float = 0.0  # wall clock, seconds since the epoch


class AlwaysApprovals:
    """Those of one journal. Nothing is cached: what another process adds or takes back counts at once."""

    def __init__(self, journal: Journal) -> None:
        self._approvals = KeyValues(journal, "approvals.always", AlwaysApproval)

    async def holds(self, digest: str) -> bool:
        return await self._approvals.get(digest) is not None

    async def add(self, approval: AlwaysApproval) -> None:
        await self._approvals.update(approval.id, lambda _: approval)

    async def listed(self) -> list[AlwaysApproval]:
        """The newest first."""
        return sorted((await self._approvals.all()).values(), key=lambda approval: (-approval.at, approval.id))

    async def forget(self, approval: AlwaysApproval) -> None:
        """Takes it back: the same call asks again. A no-op where the approval no longer holds, or was given again."""
        await self._approvals.update(approval.id, lambda known: None if known == approval else known)


def find_approval(approvals: Sequence[AlwaysApproval], word: str) -> AlwaysApproval:
    """The only one whose id begins so. Raises `TailraceError` where none does, or several do."""
    beginning = word.strip().lower()
    found = [approval for approval in approvals if beginning and approval.id.startswith(beginning)]
    if not found:
        raise TailraceError(f"there is no approval {word.strip()[:80]!r}; tailrace approvals lists them")
    if len(found) > 1:
        named = ", ".join(approval.id[:_TOLD_APART] for approval in found[:_NAMED])
        more = ", …" if len(found) > _NAMED else ""
        raise TailraceError(f"several approvals begin with {beginning[:80]!r}: {named}{more}; write more of the id")
    return found[0]


def check_approvals(config: Config) -> None:
    """Raises `ConfigError` for a pattern or a chat that can never match."""
    try:
        check_patterns(config.approvals.allow)
    except ValueError as exc:
        raise ConfigError(str(exc), key="approvals.allow") from exc
    for index, chat in enumerate(config.approvals.notify):
        settings = config.platforms.by_name.get(platform_of(chat))
        if settings is None or not settings.enabled or not chat.partition(":")[2]:
            message = f"{chat[:80]!r} names no chat of an enabled platform; expected <platform>:<chat>"
            raise ConfigError(message, key=f"approvals.notify[{index}]")


class JournalApprovals(ApprovalMemory):
    """The approvals that hold in one turn. The session's log is read once, when the first question would be asked."""

    def __init__(self, journal: Journal, run: Run) -> None:
        super().__init__()
        self._journal = journal
        self._always = AlwaysApprovals(journal)
        self._run_id = run.id
        self._unread: Run | None = run

    async def holds(self, digest: str) -> bool:
        if self._unread is not None:
            self.digests |= await session_approved(self._journal, self._unread)
            self._unread = None
        return digest in self.digests or await self._always.holds(digest)

    async def remember(self, asked: ApprovalAsked, answered: ApprovalAnswered) -> None:
        if answered.decision == "always":
            await self._always.add(self._always_approval(asked, answered))
        else:
            await super().remember(asked, answered)

    def _always_approval(self, asked: ApprovalAsked, answered: ApprovalAnswered) -> AlwaysApproval:
        return AlwaysApproval(
            id=asked.digest,
            tool_name=asked.tool_name,
            command=_bounded(asked.command),
            directory=_bounded(asked.directory),
            requester=asked.requester,
            by=answered.by,
            run_id=self._run_id,
            at=round(time.time(), 3),
        )


def _bounded(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


async def session_approved(journal: Journal, run: Run) -> set[str]:
    """The digests that were approved for the session of this run; for the run alone where it has no session."""
    if not run.new.session:
        return _approved_in(await journal.facts(run.id))
    digests: set[str] = set()
    before, page = None, [run]
    while page:
        page = await journal.runs(session=run.new.session, kind=TURN_KIND, before=before, limit=RUNS_LIMIT)
        for facts in await journal.facts_of_runs([known.id for known in page]):
            digests |= _approved_in(facts)
        before = page[-1].id if page else None
    return digests


def _approved_in(facts: Sequence[Entry]) -> set[str]:
    events = [entry.event for entry in facts]
    answers = (event for event in events if isinstance(event, ApprovalAnswered))
    approved = {event.approval_id for event in answers if event.decision == "session"}
    asked = (event for event in events if isinstance(event, ApprovalAsked))
    return {event.digest for event in asked if event.approval_id in approved}


# ── approvals that wait ──────────────────────────────────────────────────────────────────────────────────────


class WaitingApproval(NamedTuple):
    run: Run
    asked: ApprovalAsked


class RunQuestions:
    """The open questions of one run, as a turn's `QuestionBoard`."""

    def __init__(self, waiting: WaitingApprovals, run_id: str) -> None:
        self._waiting = waiting
        self._run_id = run_id

    async def post(self, approval_id: str) -> None:
        await self._waiting.post(approval_id, self._run_id)

    async def tell(self) -> None:
        await self._waiting.tell()

    async def take_down(self, approval_ids: Iterable[str]) -> None:
        await self._waiting.take_down(approval_ids)


class WaitingApprovals:
    """The list of this journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def of_run(self, run_id: str) -> RunQuestions:
        return RunQuestions(self, run_id)

    async def post(self, approval_id: str, run_id: str) -> None:
        """Called before the question is recorded, so that a reader of the log finds it here."""
        await self._journal.swap_value(_POSTED, approval_id, None, run_id.encode())

    async def take_down(self, approval_ids: Iterable[str]) -> None:
        for approval_id in approval_ids:
            await self._remove(approval_id)
        await self.tell()

    async def tell(self) -> None:
        """Wakes the readers that wait for a change. Another process that changes it at the same time wakes the same."""
        await self._journal.swap_value(*_CHANGED, await self.version(), secrets.token_hex(8).encode())

    async def listed(self) -> list[WaitingApproval]:
        """The questions that wait now, the oldest first."""
        posted = {key: value.decode() for key, value in (await self._journal.list_values(_POSTED)).items()}
        runs = await self._live(set(posted.values()))
        facts = await self._journal.facts_of_runs(list(runs)) if runs else []
        found = {
            asked.approval_id: WaitingApproval(run, asked)
            for run, entries in zip(runs.values(), facts, strict=True)
            for asked in _open_questions(entries)
        }
        for approval_id, run_id in posted.items():
            if run_id not in runs:
                await self._remove(approval_id)
        waiting = [found[approval_id] for approval_id in posted if approval_id in found]
        return sorted(waiting, key=lambda each: (each.asked.asked_at, each.asked.approval_id))

    async def answer_of(self, waiting: WaitingApproval) -> ApprovalAnswered | None:
        try:
            events = [entry.event for entry in await self._journal.facts(waiting.run.id)]
        except RunNotFound:
            return None
        answers = (event for event in events if isinstance(event, ApprovalAnswered))
        return next((each for each in answers if each.approval_id == waiting.asked.approval_id), None)

    async def version(self) -> bytes | None:
        """Read it before the list: `next_version` then misses no change of it."""
        return await self._journal.get_value(*_CHANGED)

    async def next_version(self, known: bytes | None) -> bytes | None:
        """Waits until the list has changed, here or in another process."""
        return await self._journal.next_value(*_CHANGED, known)

    async def _live(self, run_ids: Collection[str]) -> dict[str, Run]:
        runs: dict[str, Run] = {}
        for run_id in sorted(run_ids):
            try:
                run = await self._journal.get(run_id)
            except RunNotFound:
                continue
            if run.state in _LIVE:
                runs[run_id] = run
        return runs

    async def _remove(self, approval_id: str) -> None:
        if (value := await self._journal.get_value(_POSTED, approval_id)) is not None:
            await self._journal.swap_value(_POSTED, approval_id, value, None)


class QuestionSurface(Protocol):
    """Where a person at this machine is asked about runs that the surface does not show."""

    def ask(self, waiting: WaitingApproval) -> None: ...

    def take_away(self, waiting: WaitingApproval, answer: ApprovalAnswered | None) -> None:
        """A person has answered it, on any surface; None: its run has ended."""


class QuestionsElsewhere:
    """The open questions of other runs, for the person at one surface: answered anywhere, once (N168). Not those of a
    platform's people, who are asked in their chats."""

    def __init__(
        self,
        agents: AgentService,
        waiting: WaitingApprovals,
        config: Config,
        requester: str,
        stored_keys: Callable[[], Collection[str]],
    ) -> None:
        """`requester`: of the runs that the surface asks about by itself. Where the server has keys, no one but a run's
        requester may answer without one."""
        self._waiting = waiting
        self._agents = agents
        self._config = config
        self._requester = requester
        self._stored_keys = stored_keys
        self.asked: dict[str, WaitingApproval] = {}  # by approval

    async def watch(self, surface: QuestionSurface) -> None:
        """Until it is cancelled."""
        while True:
            known = await self._waiting.version()
            now = {each.asked.approval_id: each for each in await self._waiting.listed() if self.is_asked(each)}
            for gone in [self.asked.pop(key) for key in self.asked.keys() - now.keys()]:
                surface.take_away(gone, await self._waiting.answer_of(gone))
            for key, each in now.items():  # the oldest first
                if key not in self.asked:
                    self.asked[key] = each
                    surface.ask(each)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_AGAIN_S if now else None):
                    await self._waiting.next_version(known)

    async def answer(self, approval_id: str, decision: Decision, reason: str = "") -> bool:
        """False, and a no-op, for one that is not asked here. Raises `TailraceError`."""
        if (waiting := self.asked.get(approval_id)) is not None:
            with suppress(RunSealed):
                await self._agents.answer(
                    waiting.run.id, approval_id, decision, by=self._requester, reason=reason, authorised=True
                )
        return waiting is not None

    def is_asked(self, waiting: WaitingApproval) -> bool:
        by, server = waiting.asked.requester, self._config.server
        keys = self._stored_keys() or server.keys or self._config.secret(server.key_env)
        return by != self._requester and not platform_of(by) and not keys


def _open_questions(facts: Sequence[Entry]) -> list[ApprovalAsked]:
    events = [entry.event for entry in facts]
    answered = {event.approval_id for event in events if isinstance(event, ApprovalAnswered)}
    asked = (event for event in events if isinstance(event, ApprovalAsked))
    return [event for event in asked if event.approval_id not in answered]
