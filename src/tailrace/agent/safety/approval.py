"""Which actions need an approval, and what exactly a person approves.

`ApprovalPolicy` decides which actions ask; `Asker` carries the questions of one run to people and their answers back.
An answer is bound to a digest of exactly what will run, where, and for which requester (M152). A question without an
answer in time counts as denied, and so does one that no surface can show (J108).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import time
import unicodedata
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, Protocol

import msgspec

from tailrace.agent.safety.judge import Assessment, Verdict, assess
from tailrace.agent.safety.places import Places
from tailrace.agent.safety.shell import NOT_IN_EVERY_SHELL
from tailrace.events import ApprovalAnswered, ApprovalAsked
from tailrace.ports import Effect
from tailrace.runs.approval_words import NO_SURFACE, TIMED_OUT

Mode = Literal["ask", "deny", "yolo"]
LEAST_S = 5.0  # the shortest wait for an answer after another process has taken the run over
MAX_REASON = 2000  # characters of the reason that a person gives for a denial
CHANGES = "changes a file"
MAX_EARLY = 64  # answers that are stored for questions not asked yet; a turn asks few at a time
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})  # categories of Unicode


class ApprovalScope(msgspec.Struct, frozen=True):
    """The requester, the place and the session of an action. `directory` is the turn's working directory; `roots` are
    further directories that the agent may use."""

    requester: str = ""
    directory: str = ""
    session: str = ""
    roots: tuple[str, ...] = ()


class Judgement(msgspec.Struct, frozen=True):
    """The verdict on one action. `text` is the whole action and `directory` where it would happen, both escaped, so
    that a person reads exactly what will run. `digest` stands for the action, its directory and its requester."""

    verdict: Verdict
    reason: str = ""
    text: str = ""
    directory: str = ""
    session: str = ""
    digest: str = ""


def digest_of(tool_name: str, effect: Effect, directory: str, requester: str) -> str:
    """The digest of everything that an approval is bound to. Each part is preceded by its length, so that no part can
    pass for another."""
    parts = [tool_name, effect.kind, effect.text, directory, requester]
    if effect.whole:
        parts.append(effect.whole)
    joined = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()


def escaped(text: str) -> str:
    """The text with everything that a screen would hide or reorder made visible (J111): control characters, bidi
    marks, zero-width and private characters. Line ends and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    hidden = (char for char in set(text) - {"\n", "\t"} if unicodedata.category(char) in _HIDDEN)
    return text.translate({ord(char): f"\\u{{{ord(char):x}}}" for char in hidden})


def _escaped_line(text: str) -> str:
    return escaped(text).replace("\n", "\\n").replace("\t", "\\t")


class ApprovalMemory:
    """Approvals that hold beyond one call, by the digest of the approved action. They live as long as the object."""

    def __init__(self) -> None:
        self.digests: set[str] = set()

    async def holds(self, digest: str) -> bool:
        return digest in self.digests

    async def remember(self, asked: ApprovalAsked, answered: ApprovalAnswered) -> None:
        """Stores an approval that was given for more than this call."""
        if answered.decision in ("session", "always"):
            self.digests.add(asked.digest)


class ApprovalPolicy:
    """Decides which actions of one turn ask, given what its requester approved before (`memory`). Actions on the hard
    list are refused in every mode. `mode` may change: it holds from the next call of a tool on."""

    def __init__(
        self,
        mode: Mode = "ask",
        *,
        allow: Sequence[str] = (),
        memory: ApprovalMemory | None = None,
        scope: ApprovalScope | None = None,
        asks_edits: bool = False,
        plan: bool = False,
    ) -> None:
        """`asks_edits`: a change of a file asks. `plan`: whatever may do more than read is refused, in every mode."""
        self.mode: Mode = mode
        self._asks_edits = asks_edits and not plan
        self.plan = plan
        self._allow = tuple(allow)
        self._memory = memory if memory is not None else ApprovalMemory()
        self._scope = scope or ApprovalScope()

    @property
    def asks_edits(self) -> bool:
        return self._asks_edits and self.mode != "yolo"

    async def judge(self, tool_name: str, effect: Effect) -> Judgement:
        # The file tools themselves refuse places outside their directories.
        if effect.kind == "none" or (effect.kind == "write" and not (self.asks_edits or self.plan)):
            return Judgement("allow")
        scope = self._scope
        # In a thread: the judge follows links in the file system, and a long line takes a while.
        directory, (verdict, reason) = await asyncio.to_thread(self._assess, effect)
        if verdict == "allow":
            return Judgement("allow")
        digest = digest_of(tool_name, effect, directory, scope.requester)
        if self.plan and verdict == "ask":
            verdict, reason = "refuse", f"{reason}, and the plan is not agreed yet"
        elif verdict == "ask" and (self.mode == "yolo" or await self._memory.holds(digest)):
            verdict = "allow"
        elif verdict == "ask" and self.mode == "deny":
            verdict, reason = "refuse", f"{reason}, and approvals.mode is deny"
        return Judgement(
            verdict, reason, escaped(effect.text), _escaped_line(directory), _escaped_line(scope.session), digest
        )

    async def remember(self, asked: ApprovalAsked, answered: ApprovalAnswered) -> None:
        await self._memory.remember(asked, answered)

    def _assess(self, effect: Effect) -> tuple[str, Assessment]:
        """The directory in which the action would happen, and the judgement of it there."""
        directory = _resolved(self._scope.directory, effect.directory)
        if effect.kind in ("external", "write"):
            return directory, Assessment("ask", "acts outside this machine" if effect.kind == "external" else CHANGES)
        if effect.shell != "bash" and NOT_IN_EVERY_SHELL.search(effect.text):
            return directory, Assessment("ask", f"{effect.shell} may read it otherwise than bash does")
        inside = (_resolved(self._scope.directory, "."), *(_resolved(root, ".") for root in self._scope.roots if root))
        home = os.path.expanduser("~")  # noqa: PTH111 - text
        places = Places((directory,), inside, home, lambda path: _resolved(path, "."), read_only=self.plan)
        return directory, assess(effect.text, places, () if self.plan else self._allow)


def _resolved(working_directory: str, directory: str) -> str:
    """The directory without links: an approval does not hold for the target that a link gets later."""
    try:
        return os.path.realpath(os.path.join(working_directory, directory))  # noqa: PTH118 - a model wrote it
    except ValueError:  # a NUL, which the tool refuses
        return directory


class QuestionBoard(Protocol):
    """The list of open questions that all surfaces read. A question is posted right before it is recorded; after that,
    `tell` wakes the readers that wait for a change."""

    async def post(self, approval_id: str) -> None: ...

    async def tell(self) -> None: ...

    async def take_down(self, approval_ids: Iterable[str]) -> None: ...


class Asker:
    """The open questions of one run. `name` is the requester's display name; where it is empty, `find_name` is called
    for it with the first question. `reachable`: at least one surface can answer. Questions that wait for an answer are
    posted on the `board`."""

    def __init__(
        self,
        requester: str = "",
        *,
        name: str = "",
        find_name: Callable[[str], Awaitable[str]] | None = None,
        reachable: bool = True,
        timeout_s: float = 60.0,
        board: QuestionBoard | None = None,
    ) -> None:
        self.requester = requester
        self._name = name
        self._find_name = find_name
        self._reachable = reachable
        self._timeout_s = timeout_s
        self._board = board
        self._posted: set[str] = set()
        self._open: dict[str, asyncio.Future[ApprovalAnswered]] = {}
        self._early: dict[str, ApprovalAnswered] = {}  # answers to questions not open yet

    async def requester_name(self) -> str:
        """The requester's display name; empty where it is not known."""
        if not self._name and self._find_name is not None:
            self._name = await self._find_name(self.requester)
        return self._name

    def new_id(self) -> str:
        return f"apr_{secrets.token_hex(8)}"

    def expiry(self, asked_at: float) -> float:
        """When a question asked at `asked_at` counts as unanswered; 0 where no surface can answer."""
        return asked_at + self._timeout_s if self._reachable else 0.0

    @contextmanager
    def expecting(self, asked: ApprovalAsked) -> Iterator[Callable[[], Awaitable[ApprovalAnswered]]]:
        """Accepts an `answer` to this approval while the block runs."""
        future: asyncio.Future[ApprovalAnswered] = asyncio.get_running_loop().create_future()
        self._open[asked.approval_id] = future
        if (early := self._early.pop(asked.approval_id, None)) is not None:
            future.set_result(early)

        async def answer() -> ApprovalAnswered:
            if future.done():
                return future.result()
            if not self._reachable:
                return ApprovalAnswered(asked.approval_id, "deny", NO_SURFACE)
            try:
                async with asyncio.timeout(self._left_s(asked)):
                    return await future
            except TimeoutError:
                return ApprovalAnswered(asked.approval_id, "deny", TIMED_OUT)

        try:
            yield answer
        finally:
            del self._open[asked.approval_id]

    def waits_for(self, asked: ApprovalAsked) -> bool:
        """Whether this open question needs a person now: a surface can answer, and no answer came before it."""
        return self._reachable and not self._open[asked.approval_id].done()

    async def post(self, asked: ApprovalAsked) -> None:
        """Lists a question that will wait for an answer. Called before it is recorded; `tell` is called after that."""
        if self._board is not None and self.waits_for(asked):
            self._posted.add(asked.approval_id)
            await self._board.post(asked.approval_id)

    async def tell(self) -> None:
        if self._board is not None and self._posted:
            await self._board.tell()

    async def take_down(self) -> None:
        """Removes the questions from the list that no longer wait: answered on record, or the run has ended."""
        if self._board is not None and (closed := self._posted - self._open.keys()):
            self._posted -= closed
            await self._board.take_down(closed)

    def _left_s(self, asked: ApprovalAsked) -> float:
        """The question keeps its expiry when another process takes the run over. `LEAST_S` lets an answer arrive that
        was given while no process executed the run."""
        if not asked.expires_at:
            return self._timeout_s
        return min(self._timeout_s, max(asked.expires_at - time.time(), LEAST_S))

    def answer(self, answered: ApprovalAnswered, *, authorised: bool = False) -> bool:
        """Whether the answer counted: the question is open, and `by` is its requester (J110) or was `authorised` to
        answer for them (N168). An answer that came while no process executed the run counts when its question is asked
        again."""
        if answered.by != self.requester and not authorised:
            return False
        approval_id = answered.approval_id
        future = self._open.get(approval_id)
        if future is None:
            self._early.pop(approval_id, None)
            self._early[approval_id] = answered
            if len(self._early) > MAX_EARLY:
                del self._early[next(iter(self._early))]
            return False
        if future.done():
            return False
        future.set_result(answered)
        return True
