"""A fork: what a run begins with that goes on from another run's log, as that log was at one of its entries.

Pure, but for reading the log. The fork's own log has all of it, so that the other run may be deleted. A fork with a
question of its own has what was said before as its history. One without goes on with the other run's turn: its messages
and results are copied, not its usage. What was under way is taken up as after a crash: text goes on where it ended, and
a call without a result is made again only where it is safe to repeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, assert_never

from msgspec.structs import replace

from tailrace import events
from tailrace.agent.endings import without_warning
from tailrace.agent.turn import Turn
from tailrace.errors import CursorAhead, ForkRefused
from tailrace.events import AnyEvent, Entry
from tailrace.messages import Message, Reasoning, Text, ToolCall, Value
from tailrace.ports import Journal, Run

_FIRST = 2  # the entry after `RunStarted`; in the log of a fork its inherited history, where it has one
_UNFINISHED = frozenset({"cut", "stopped", "length", "limit"})  # how answers end that a fork may go on with
_History: TypeAlias = (
    events.MessageRecorded | events.ToolOutputRecorded | events.HistoryCompressed | events.SteerCommitted
)
# What viewers saw is made anew from the facts; what an attempt cost and whether it was kept is the other run's.
_NotCopied: TypeAlias = (
    events.RunFact
    | events.StreamEvent
    | events.ShownFact
    | events.AttemptFact
    | events.SequenceFact
    | events.Delivered
    | events.Snapshot
)


class ForkPoint(Value):
    """Where a run was forked: after the entry `after` of the run `run_id`. `asks`: it has a question of its own;
    without one it goes on with the other run's."""

    run_id: str
    after: int
    asks: bool = False


class ForkRequest(Value):
    """Where a fork begins, and what is different in it. `after` is the last entry of the other run that counts; 0 is
    where that run began, before its question."""

    run_id: str
    after: int
    message: Message | None = None  # None: the turn goes on as it was there, with the question that it has
    model: str | None = None  # as in `TurnSpec`; None: the other run's
    requester: str = ""
    reachable: bool = False
    yolo: bool = False
    keep_files: bool = False  # where the message replaces the question: with what was attached to that


class ForkedLog(Value):
    """The other run's log up to the fork. `tools` is what viewers saw of its tools, by index. `is_whole_fork`: the log
    is a fork's own, with all that it has inherited."""

    entries: tuple[Entry, ...]
    is_whole_fork: bool = False
    tools: Mapping[int, events.ToolSoFar] = {}

    @property
    def after(self) -> int:
        return self.entries[-1].seq if self.entries else 0


async def forked_log(journal: Journal, run: Run, after: int) -> ForkedLog:
    """The log up to this entry. 0 is where the run began with its own work, before its question. Of a compacted log the
    facts are left: a text that was under way is not. Raises `CursorAhead` for an entry that is not there."""
    entries: Sequence[Entry] = await journal.read(run.id)
    if after > run.last_seq:
        raise CursorAhead(f"the log of {run.id} has {run.last_seq} entries and the fork is to begin after {after}")
    if entries and isinstance(entries[0].event, events.Snapshot):
        entries = await journal.facts(run.id)
    forked_at = next((entry.seq for entry in entries if isinstance(entry.event, events.RunForked)), 0)
    state = (await journal.snapshot(run.id)).event
    tools = {tool.index: tool for tool in state.tools} if isinstance(state, events.Snapshot) else {}
    return ForkedLog(tuple(until(entries, after or forked_at)), bool(forked_at), tools)


def until(entries: Iterable[Entry], after: int) -> list[Entry]:
    """The entries up to this one, and always the history that a fork began with."""

    def is_inherited(entry: Entry) -> bool:
        return entry.seq == _FIRST and isinstance(entry.event, events.HistoryCompressed)

    return [entry for entry in entries if entry.seq <= after or is_inherited(entry)]


def question_in(entries: Iterable[Entry], point: ForkPoint | None) -> Message | None:
    """The run's own question, as it is on record. `point` is where the run itself was forked, if it was."""
    own = point is None or not point.asks
    for entry in entries:
        own = own or isinstance(entry.event, events.RunForked)
        if own and isinstance(entry.event, events.MessageRecorded):
            return entry.event.message
    return None


def has_question(entries: Iterable[Entry], point: ForkPoint | None) -> bool:
    """Whether the run's own question is on record."""
    return question_in(entries, point) is not None


def leaves_question(entries: Sequence[Entry], point: ForkPoint | None) -> bool:
    """Whether the run's own question stays where a fork with a new one begins after these entries: it was asked, and
    something was said to it."""
    return has_question(entries, point) and len(_without_open_question(entries)) == len(entries)


def with_files_of(question: Message, edited: Message) -> Message:
    """The edited question with what was attached to the first one: all parts of that but the text that its user typed,
    which is the first of its texts."""
    typed = next((at for at, part in enumerate(question.parts) if isinstance(part, Text)), None)
    files = tuple(part for at, part in enumerate(question.parts) if at != typed)
    return replace(edited, parts=(*edited.parts, *files))


def check_goes_on(entries: Sequence[Entry], run_id: str) -> None:
    """Raises `ForkRefused` where nothing is left to do after the last of these entries."""
    if _open_end(entries) is None:
        raise ForkRefused(
            f"the answer of {run_id} is complete there; give an input, or fork it earlier: after 0 asks its question "
            "again"
        )


def inherited(point: ForkPoint, history: Iterable[Message], log: ForkedLog) -> list[Entry]:
    """The entries of the fork between its first and its own. `history` is what the other run's session said before."""
    copied = _conversation(history, log.entries) if point.asks else _turn_so_far(tuple(history), log)
    newest = max((entry.attempt for entry in log.entries), default=1)
    copied.append((newest, events.RunForked(point.run_id, point.after)))
    return [Entry(seq, event, attempt) for seq, (attempt, event) in enumerate(copied, _FIRST)]


# ── with a question of its own ───────────────────────────────────────────────────────────────────────────────


def _conversation(history: Iterable[Message], entries: Sequence[Entry]) -> list[tuple[int, AnyEvent]]:
    """Everything said so far, whole: text so far is a message, and each call has a result."""
    turn = Turn(history)
    turn.replay(_without_open_question(entries))
    turn.apply(events.RunForked("", 0))
    for event in turn.last_words():
        turn.apply(event)
    return [(1, events.HistoryCompressed(turn.messages))] if turn.messages else []


def _without_open_question(entries: Sequence[Entry]) -> list[Entry]:
    """A question that nothing has been said to yet is replaced by the new one."""
    at = _last_history_fact(entries)
    event = entries[at].event if at is not None else None
    is_open = isinstance(event, events.MessageRecorded) and event.message.role == "user" and not _shown(entries)
    return [entry for place, entry in enumerate(entries) if not is_open or place != at]


def _last_history_fact(entries: Sequence[Entry]) -> int | None:
    return next((at for at in reversed(range(len(entries))) if isinstance(entries[at].event, _History)), None)


def _shown(entries: Iterable[Entry]) -> str:
    turn = Turn()
    turn.replay(entries)
    return turn.shown


# ── on with the other run's turn ─────────────────────────────────────────────────────────────────────────────


def _open_end(entries: Sequence[Entry]) -> tuple[Sequence[Entry], str] | None:
    """The entries before the answer under way, and its text; None where the last answer is complete. One that broke off
    is under way again."""
    at = _last_history_fact(entries)
    event = entries[at].event if at is not None else None
    if (shown := _shown(entries)) or not isinstance(event, events.MessageRecorded) or event.message.role != "assistant":
        return entries, shown
    message = event.message
    if message.tool_calls:
        return entries, ""
    text = without_warning(message.text) if event.stop in _UNFINISHED else message.text
    if text.strip() and event.stop not in _UNFINISHED:
        return None
    return entries[:at], text


def _turn_so_far(history: tuple[Message, ...], log: ForkedLog) -> list[tuple[int, AnyEvent]]:
    found = _open_end(log.entries)
    if found is None:
        raise ValueError("the turn is over")  # `check_goes_on` has refused it
    entries, shown = found
    copy = _TurnCopy(log.tools)
    if history:
        copy.add(1, events.HistoryCompressed(history))
    for entry in entries:
        copy.copy(entry)
    if shown:
        copy.add(log.entries[-1].attempt, events.MessageChunk(shown))
    return copy.copied


class _TurnCopy:
    """The facts of a turn, and the events that show them."""

    def __init__(self, tools: Mapping[int, events.ToolSoFar]) -> None:
        self.copied: list[tuple[int, AnyEvent]] = []
        self._tools = tools
        self._calls: list[ToolCall] = []  # the place of a call is its index
        self._asked: dict[str, events.ApprovalAsked] = {}  # by approval
        self._approvals: dict[str, list[AnyEvent]] = {}  # answered ones, by call
        self._steers: dict[str, events.SteerAccepted] = {}

    def add(self, attempt: int, *copied: AnyEvent) -> None:
        self.copied += [(attempt, event) for event in copied]

    def copy(self, entry: Entry) -> None:
        event = entry.event
        match event:
            case events.MessageRecorded(message):
                self._calls += message.tool_calls
                self.add(entry.attempt, *_shown_message(event))
            case events.ToolOutputRecorded():
                self.add(entry.attempt, *self._shown_result(event))
            case events.HistoryCompressed():
                self.add(entry.attempt, event)
            case events.ApprovalAsked(approval_id=approval_id):
                self._asked[approval_id] = event
            case events.ApprovalAnswered(approval_id=approval_id):
                if (asked := self._asked.get(approval_id)) is not None:
                    self._approvals.setdefault(asked.call_id, []).extend((replace(asked, digest=""), event))
            case events.SteerAccepted(steer_id):
                self._steers[steer_id] = event  # copied once it is committed: until then it is the other run's alone
            case events.SteerCommitted(steer_id):
                if _ends_with_answer(self.copied):
                    self.add(entry.attempt, events.MessageStop(final=False))
                self.add(entry.attempt, self._steers[steer_id], event)
            case events.SteerReturned():
                pass
            case _ if isinstance(event, _NotCopied):
                pass
            case _:
                assert_never(event)

    def _shown_result(self, result: events.ToolOutputRecorded) -> Iterable[AnyEvent]:
        """An approval is copied with the result of its call, for viewers: without its digest it holds for nothing. One
        that waits is asked anew, where the call is made."""
        index = next((at for at in reversed(range(len(self._calls))) if self._calls[at].id == result.call_id), None)
        if index is None:
            return [result]
        call, name = self._calls[index], result.tool_name
        seen = self._tools.get(index) or events.ToolSoFar(name, index, args=call.parsed())
        return [
            *self._approvals.pop(call.id, []),
            events.ToolCallChunk(name, seen.preview, seen.args, index),
            result,
            events.ToolCallFinished(name, seen.duration, result.ok, index),
        ]


def _ends_with_answer(copied: Sequence[tuple[int, AnyEvent]]) -> bool:
    """Whether the last copied event is an answer without calls, whose message no event has closed."""
    last = copied[-1][1] if copied else None
    return isinstance(last, events.MessageRecorded) and last.message.role == "assistant"


def _shown_message(recorded: events.MessageRecorded) -> Iterable[AnyEvent]:
    message = recorded.message
    if message.role != "assistant":
        return [recorded]
    said: list[AnyEvent] = []
    if thoughts := "".join(part.text for part in message.parts if isinstance(part, Reasoning)):
        said.append(events.ReasoningChunk(thoughts))
    if message.text:
        said.append(events.MessageChunk(message.text))
    said.append(recorded)
    if message.text and message.tool_calls:
        said.append(events.MessageStop(final=False))
    return said
