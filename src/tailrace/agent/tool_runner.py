"""One tool call, from what the model asked for to the recorded outcome.

Owns the order that makes it safe: arguments validated, approval asked and recorded, the start durable before anything
happens, the outcome recorded before it is used. Every surface and every mode takes this one path (J112).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from tailrace.agent.answer_filter import MAX_ARGUMENT_CHARS
from tailrace.agent.observer import UNOBSERVED, Observer
from tailrace.agent.safety.approval import ApprovalPolicy, Asker, Judgement, digest_of, escaped
from tailrace.agent.safety.redact import Redactor
from tailrace.agent.turn import ENDED_WITH_PROCESS, RunTool, SettleTool, Turn
from tailrace.errors import TailraceError
from tailrace.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    GatewayNotice,
    LongToolHint,
    NotExecuted,
    NotExecutedKind,
    ToolCallChunk,
    ToolCallFinished,
    ToolOutputRecorded,
)
from tailrace.messages import FileChange, JsonObject, ToolCall, ToolFile
from tailrace.ports import Budget, Effect, FileTool, Tool, ToolOutcome
from tailrace.runs.approval_words import NO_SURFACE, TIMED_OUT, outcome_words, unanswered_words
from tailrace.runs.record import RecordedFold
from tailrace.wire.peer_json import without_lone_surrogates

# The kind of a denial, by `ApprovalAnswered.by`. Any other name is that of a person who said no.
_DENIALS: dict[str, NotExecutedKind] = {NO_SURFACE: "no_one_to_ask", TIMED_OUT: "no_answer"}
MAX_FILES_BYTES = 8 * 2**20  # of one call's files together: they are kept in the log
MOVED = "Not executed: {what} after the approval was given. Make the call again."
IN_PLAN = "Not executed: {reason}. Say what it would do; it can run once the user has agreed to the plan."
PART_SHOWN = "\n(not all of the change is shown: deny it, and say that you want it in smaller steps)"
_PROGRESS_EVERY_S = 1.0  # a chatty tool must not fill the log


class Snapshots(Protocol):
    """Checkpoints of the working directory."""

    async def before_change(self) -> None:
        """Takes the turn's snapshot, if it has not been taken yet. Raises `TailraceError` where it cannot be."""


class ToolSettings(msgspec.Struct, frozen=True):
    directory: Path
    roots: tuple[Path, ...] = ()
    long_after_s: float = 30.0  # when a hint says that a tool takes long
    observer: Observer = UNOBSERVED


OnWaiting = Callable[[bool], None]  # called when it changes whether all calls under way wait for a person


class _Context(NamedTuple):
    """What a tool may know of the run that calls it."""

    directory: Path
    roots: tuple[Path, ...]
    progress: Callable[[str], None]
    call_index: int
    record: Callable[[AnyEvent], None]
    budget: Callable[[], Budget]
    is_stopped: Callable[[], bool]
    ask: Callable[[str], Awaitable[bool]]


class _Refusal(NamedTuple):
    """Why a call is not made: for the model, and for the user."""

    output: str
    not_executed: NotExecuted


class ToolRunner:
    """Runs the tool calls of one turn."""

    def __init__(
        self,
        record: RecordedFold[Turn],
        tools: Mapping[str, Tool],
        policy: ApprovalPolicy,
        asker: Asker,
        redactor: Redactor,
        settings: ToolSettings,
        snapshots: Snapshots | None = None,
        on_waiting: OnWaiting = lambda _: None,
    ) -> None:
        self._record = record
        self._on_waiting = on_waiting
        self._tools = tools
        self._policy = policy
        self._asker = asker
        self._redactor = redactor
        self._settings = settings
        self._snapshots = snapshots
        self._began: dict[int, float] = {}  # the calls that run, by index, and since when on the loop's clock
        self._under_way = 0  # calls that have begun and not ended
        self._asking = 0  # those of them that wait for a person
        self._waits = False  # all of them do
        self.is_stopped = False  # the turn: no process goes on with what is left unfinished

    def with_durations(self, events: Sequence[AnyEvent]) -> list[AnyEvent]:
        """The same events; the ends of calls that were cut off while they ran say how long they had run."""
        now = asyncio.get_running_loop().time()
        return [
            msgspec.structs.replace(event, duration=round(now - self._began[event.index], 3))
            if isinstance(event, ToolCallFinished) and event.index in self._began
            else event
            for event in events
        ]

    async def run_all(self, commands: Sequence[RunTool | SettleTool]) -> None:
        """Runs what is due. Neighbours that may run side by side do."""
        self._record.add(*self._record.fold.unsettled())
        beside: list[RunTool | SettleTool] = []
        for command in commands:
            tool = self._tools.get(command.call.name)
            if tool is not None and tool.parallel:
                beside.append(command)
                continue
            await self._side_by_side(beside)
            beside = []
            await self._run_one(command)
        await self._side_by_side(beside)

    async def _side_by_side(self, commands: Sequence[RunTool | SettleTool]) -> None:
        async with asyncio.TaskGroup() as group:
            for command in commands:
                group.create_task(self._run_one(command))

    async def _run_one(self, command: RunTool | SettleTool) -> None:
        self._count(under_way=1)
        try:
            await self._run_call(command)
        finally:
            self._count(under_way=-1)

    def _count(self, *, under_way: int = 0, asking: int = 0) -> None:
        self._under_way += under_way
        self._asking += asking
        waits = 0 < self._asking == self._under_way
        if waits != self._waits:
            self._waits = waits
            self._on_waiting(waits)

    async def _run_call(self, command: RunTool | SettleTool) -> None:
        call, index = command.call, command.index
        tool = self._tools.get(call.name)
        if isinstance(command, SettleTool) and not (tool is not None and tool.repeatable):
            return self._settle(index, call, ToolOutcome(ENDED_WITH_PROCESS, ok=False))
        args = call.parsed()
        problem = self._problem(tool, call, args)
        refusal: _Refusal | None = None
        if not problem and tool is not None and args is not None:
            effect = await self._effect(tool, args)
            if isinstance(effect, ToolOutcome):
                problem = effect.output
            else:
                refusal = await self._refusal(tool, command, args, effect) or await self._snapshot(effect, call)
        self._announce(index, call, tool, args)
        if refusal is not None:
            return self._settle(index, call, ToolOutcome(refusal.output, ok=False), not_executed=refusal.not_executed)
        if problem or tool is None or args is None:
            return self._settle(index, call, ToolOutcome(problem, ok=False))
        await self._record.commit()  # durable before it happens: after a crash it counts as begun (I106)
        await self._execute(index, call, tool, args)
        return None

    def _problem(self, tool: Tool | None, call: ToolCall, args: JsonObject | None) -> str:
        """Why this call cannot be made, in words for the model; empty when it can."""
        if tool is None:
            return f"There is no tool named {call.name!r}. There are: {', '.join(sorted(self._tools)) or 'none'}."
        if len(call.arguments) > MAX_ARGUMENT_CHARS:
            limit = f"{MAX_ARGUMENT_CHARS:,} characters"
            return f"The arguments were longer than {limit}; the call was not executed. Make it again with less."
        if args is None:
            return "The arguments were not a complete JSON object; the call was not executed. Make it again."
        return tool.invalid(args)

    async def _effect(self, tool: Tool, args: JsonObject) -> Effect | ToolOutcome:
        """What the call would do, a change of a file line by line where a person is asked about it; the outcome of one
        that would fail."""
        effect = tool.effect(args)
        if not (self._policy.asks_edits and effect.kind == "write" and isinstance(tool, FileTool)):
            return effect
        places, budget = (self._settings.directory, self._settings.roots), self._record.fold.budget_of_call
        context = _Context(*places, _ignore, 0, _ignore, budget, lambda: True, _refuse_question)
        change = await tool.change_of(args, context)
        if isinstance(change, ToolOutcome):
            return change
        counts = f"{change.path} (+{change.added} −{change.removed})"
        whole = msgspec.json.encode(args, order="sorted").decode()
        shown = sum(line.startswith(("+", "-")) for line in change.diff.split("\n"))
        part = PART_SHOWN if shown < change.added + change.removed else ""
        return msgspec.structs.replace(effect, text=f"{counts}\n{change.diff}".rstrip() + part, whole=whole)

    async def _refusal(
        self, tool: Tool, command: RunTool | SettleTool, args: JsonObject, effect: Effect
    ) -> _Refusal | None:
        """Why this call may not be made; None when it may."""
        call = command.call
        judgement = await self._policy.judge(call.name, effect)
        if judgement.verdict == "allow":
            return None
        if judgement.verdict == "refuse":
            not_executed = self._not_executed(call, judgement.text, judgement.reason, "forbidden")
            words = IN_PLAN if self._policy.plan else "Refused: {reason}. This is never executed."
            return _Refusal(words.format(reason=judgement.reason), not_executed)
        # The question that was put about exactly this before a crash, and its answer (J111).
        before = command if isinstance(command, RunTool) else None
        asked = before.asked if before and before.asked and before.asked.digest == judgement.digest else None
        question = asked or await self._question(call, judgement)
        answered = before.answered if before and asked else None
        is_new = answered is None
        if answered is None:
            answered = await self._ask(question, is_put=asked is not None)
        if answered.decision == "deny":
            kind, reason = (
                _DENIALS.get(answered.by, "denied"),
                f"{judgement.reason}; {outcome_words(question, answered)}",
            )
            output = f"Not executed: {_denial(question, answered)}."
            return _Refusal(output, self._not_executed(call, judgement.text, reason, kind))
        if is_new or answered.decision != "always":  # an old "always" may have been taken back since
            await self._policy.remember(question, answered)
        effect_now = await self._effect(tool, args)
        if isinstance(effect_now, Effect):
            now = await self._policy.judge(call.name, effect_now)
            if now.digest == judgement.digest:
                return None
        what = "the file was changed" if effect.kind == "write" else "the directory was replaced"
        return _Refusal(MOVED.format(what=what), self._not_executed(call, judgement.text, what, "failed"))

    def _not_executed(self, call: ToolCall, command: str, reason: str, kind: NotExecutedKind) -> NotExecuted:
        return NotExecuted(call.name, self._storable(command), self._storable(reason), kind)

    async def _question(self, call: ToolCall, judgement: Judgement) -> ApprovalAsked:
        requester_name = await self._asker.requester_name()
        asked_at = round(time.time(), 3)
        return ApprovalAsked(
            approval_id=self._asker.new_id(),
            tool_name=call.name,
            command=self._redactor.redact(judgement.text),
            digest=judgement.digest,
            requester=self._asker.requester,
            requester_name=requester_name,
            call_id=call.id,
            reason=judgement.reason,
            directory=self._redactor.redact(judgement.directory),
            session=judgement.session,
            asked_at=asked_at,
            expires_at=self._asker.expiry(asked_at),
        )

    async def _ask(self, asked: ApprovalAsked, *, is_put: bool) -> ApprovalAnswered:
        """A question that was put before a crash stands: its answer, given meanwhile or later, counts."""
        with self._asker.expecting(asked) as answer:
            await self._asker.post(asked)
            if not is_put:
                self._record.add(asked)
                await self._record.commit()
            await self._asker.tell()
            asking = int(self._asker.waits_for(asked))
            self._count(asking=asking)
            try:
                given = await answer()
            finally:
                self._count(asking=-asking)
        answered = msgspec.structs.replace(given, reason=self._storable(escaped(given.reason)))
        self._record.add(answered)
        await self._record.commit()
        await self._asker.take_down()
        return answered

    async def _ask_within(self, call: ToolCall, question: str) -> bool:
        """A question of a tool that runs."""
        if self._policy.mode != "ask":
            return self._policy.mode == "yolo"
        text = escaped(question)
        digest = digest_of(call.name, Effect("external", text), "", self._asker.requester)
        asked = await self._question(call, Judgement("ask", "the tool asks", text, digest=digest))
        return (await self._ask(asked, is_put=False)).decision != "deny"

    async def _snapshot(self, effect: Effect, call: ToolCall) -> _Refusal | None:
        if self._snapshots is None or effect.kind == "none":
            return None
        try:
            await self._snapshots.before_change()
        except TailraceError as exc:
            reason = f"the checkpoint before the first change failed ({exc})"
            not_executed = self._not_executed(call, escaped(effect.text) or call.name, reason, "failed")
            return _Refusal(f"Not executed: {reason}.", not_executed)
        return None

    def _announce(self, index: int, call: ToolCall, tool: Tool | None, args: JsonObject | None) -> None:
        preview = self._storable(tool.preview(args)) if tool is not None and args is not None else None
        shown = _redacted(args, self._redactor) if args is not None else None
        self._record.add(ToolCallChunk(call.name, preview, shown, index))

    async def _execute(self, index: int, call: ToolCall, tool: Tool, args: JsonObject) -> None:
        loop = asyncio.get_running_loop()
        began = self._began[index] = loop.time()
        hint = loop.call_later(
            self._settings.long_after_s,
            lambda: self._record.add(LongToolHint(call.name, round(loop.time() - began, 3))),
        )
        try:
            with self._settings.observer.tool(call, tool) as ended:
                context = _Context(
                    self._settings.directory,
                    self._settings.roots,
                    self._progress_of(index, call),
                    index,
                    self._record.add,
                    self._record.fold.budget_of_call,
                    lambda: self.is_stopped,
                    partial(self._ask_within, call),
                )
                outcome = await tool.run(args, context)
                ended(outcome)
        except (Exception, SystemExit) as exc:  # noqa: BLE001 - a tool is foreign code: what it raises, the model reads
            outcome = ToolOutcome(f"{type(exc).__name__}: {exc}", ok=False)
        finally:
            hint.cancel()
        del self._began[index]
        self._settle(index, call, outcome, loop.time() - began)
        await self._record.commit()

    def _progress_of(self, index: int, call: ToolCall) -> Callable[[str], None]:
        loop = asyncio.get_running_loop()
        quiet_until = loop.time() + _PROGRESS_EVERY_S

        def progress(text: str) -> None:
            nonlocal quiet_until
            if loop.time() >= quiet_until:
                quiet_until = loop.time() + _PROGRESS_EVERY_S
                self._record.add(ToolCallChunk(call.name, self._storable(text), index=index))

        return progress

    def _settle(
        self,
        index: int,
        call: ToolCall,
        outcome: ToolOutcome,
        duration: float = 0.0,
        *,
        not_executed: NotExecuted | None = None,
    ) -> None:
        """The outcome first, then the end of the tool's line: a viewer never sees an end that is not on record."""
        files, left_out = self._storable_files(outcome.files)
        told = [f"\n[{file.name}: {len(file.data)} bytes, too large to be shown]" for file in left_out]
        output = self._storable(outcome.output + "".join(told))
        self._record.add(
            ToolOutputRecorded(
                call.id, call.name, output, outcome.ok, files, not_executed, self._storable_change(outcome)
            ),
            ToolCallFinished(call.name, round(duration, 3), outcome.ok, index),
            *map(_left_out_notice, left_out),
        )

    def _storable(self, text: str) -> str:
        """A tool's text without secrets (J114) and lone surrogates, which neither log nor request takes (A18)."""
        return without_lone_surrogates(self._redactor.redact(text))

    def _storable_change(self, outcome: ToolOutcome) -> FileChange | None:
        if outcome.change is None:
            return None
        path, diff = self._storable(outcome.change.path), self._storable(outcome.change.diff)
        return msgspec.structs.replace(outcome.change, path=path, diff=diff)

    def _storable_files(self, files: Sequence[ToolFile]) -> tuple[tuple[ToolFile, ...], list[ToolFile]]:
        """The files that fit into the log, those of text without secrets, and those that do not fit."""
        kept: list[ToolFile] = []
        left_out: list[ToolFile] = []
        room = MAX_FILES_BYTES
        for file in files:
            if len(file.data) > room:
                left_out.append(ToolFile(self._storable(file.name), file.media_type, file.data))
                continue
            room -= len(file.data)
            data = file.data
            if file.media_type.startswith("text/") and not self._redactor.idle:
                data = self._redactor.redact(data.decode(errors="replace")).encode()
            kept.append(ToolFile(self._storable(file.name), file.media_type, data))
        return tuple(kept), left_out


def _ignore(_: object) -> None:
    pass


async def _refuse_question(_question: str) -> bool:
    return False


def _left_out_notice(file: ToolFile) -> GatewayNotice:
    """For the user: the tool's output names the file for the model alone."""
    size, most = len(file.data) / 2**20, MAX_FILES_BYTES >> 20
    text = f"{file.name} ({size:.1f} MiB) is not shown: the files of one tool call may have {most} MiB."
    return GatewayNotice("file_left_out", text, {"name": file.name, "bytes": len(file.data)})


def _denial(asked: ApprovalAsked, answered: ApprovalAnswered) -> str:
    """Why an action was denied, for the model: whether a person said no, and what that person says about it."""
    if words := unanswered_words(asked, answered.by):
        return f"it needs an approval, and {words}"
    return f"denied by the user: {answered.reason.rstrip('.')}" if answered.reason else "denied by the user"


def _redacted(args: JsonObject, redactor: Redactor) -> JsonObject:
    if redactor.idle:
        return args
    text = msgspec.json.encode(args).decode()
    clean = redactor.redact(text)
    try:
        value = args if clean == text else msgspec.json.decode(clean)
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}
