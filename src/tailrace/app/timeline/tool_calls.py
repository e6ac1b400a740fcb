"""The tool calls of a timeline, and the approvals that they waited for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from tailrace.app.timeline.board import Board
from tailrace.app.timeline.items import ApprovalItem, ToolCallItem, ToolState
from tailrace.events import ApprovalAnswered, ApprovalAsked, NotExecuted, ToolOutputRecorded, ToolSoFar
from tailrace.messages import FileChange, ToolCall
from tailrace.runs.view.changes import CallEnded, CallRuns, CallWritten, SubRunBegan, WrittenCall

_EXIT: Final = re.compile(r"\[(?:exit code (\d+)|ended by signal (\d+))\]\s*\Z")
_OPEN: Final = frozenset({"writing", "waiting", "running"})


class ToolCalls:
    """Calls by index."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._by_index: dict[int, int] = {}  # places of items
        self._next_index = 0
        self._approvals: dict[str, int] = {}
        self._known: dict[int, ToolSoFar] = {}  # from the snapshot of a compacted log

    def restore(self, tools: tuple[ToolSoFar, ...]) -> None:
        self._known = {tool.index: tool for tool in tools}

    def _item(self, place: int) -> ToolCallItem:
        item = self._board.items[place]
        if not isinstance(item, ToolCallItem):
            raise TypeError(item)
        return item

    def _add(self, name: str, index: int, attempt: int, state: ToolState, **fields: float | None) -> int:
        known = self._known.get(index)
        self._next_index = max(self._next_index, index + 1)
        place = self._by_index[index] = self._board.add_now(
            ToolCallItem,
            ends=False,
            tool_name=name,
            index=index,
            attempt=attempt,
            state=state,
            preview=(known.preview or "") if known is not None else "",
            arguments=known.args if known is not None else None,
            duration_s=known.duration if known is not None and known.ok is not None else None,
            **fields,
        )
        return place

    # ── the model asks ───────────────────────────────────────────────────────────────────────────────────────

    def write(self, change: CallWritten) -> None:
        board, place = self._board, self._by_index.get(change.index)
        if change.begins or place is None:
            place = self._add(change.tool_name, change.index, change.attempt, "writing", writing_start=board.now)
        if change.call is None:
            board.change(place, end_seq=board.seq)
        else:
            self._record(place, change.call)

    def _record(self, place: int, call: ToolCall) -> None:
        item, parsed = self._item(place), call.parsed()
        shown = item.arguments if item.arguments is not None else parsed
        rest = "" if parsed is not None else call.arguments
        self._board.change(place, state="waiting", call_id=call.id, arguments=shown, arguments_text=rest)

    def break_off(self, calls: Iterable[WrittenCall]) -> None:
        """These calls will never be whole: the attempt has ended."""
        for call in calls:
            self._board.end(self._by_index.pop(call.index), state="broken_off", arguments_text=call.text)

    # ── the tool runs ────────────────────────────────────────────────────────────────────────────────────────

    def start(self, change: CallRuns) -> None:
        place = self._by_index.get(change.index)
        if place is None:
            place = self._add(change.tool_name, change.index, change.attempt, "running")
        args = change.args if change.args is not None else self._item(place).arguments
        known = {"preview": change.preview or "", "arguments": args, "attempt": change.attempt}
        self._board.change(place, state="running", start=self._board.now, **known)

    def begin_sub_run(self, change: SubRunBegan) -> None:
        if (place := self._by_index.get(change.index)) is not None:
            steps = self._known[change.index].steps if change.index in self._known else self._item(place).steps
            self._board.change(place, run_id=change.run_id, steps=steps)

    def step(self, index: int, text: str) -> None:
        """The run that the call is makes a call of its own."""
        if (place := self._by_index.get(index)) is not None:
            self._board.change(place, steps=(*self._item(place).steps, text))

    def end(self, change: CallEnded) -> None:
        place = self._by_index.get(change.index) if change.index is not None else None
        if (output := change.output) is not None:
            if place is None:
                place = self._add(change.tool_name, self._next_index, 1, "running")
                self._board.change(place, call_id=output.call_id)
            self._output(place, output)
        elif place is not None:
            self._finish(place, change)

    def _output(self, place: int, event: ToolOutputRecorded) -> None:
        item = self._item(place)
        change = event.change or FileChange("")
        self._board.end(
            place,
            state=_state(event.not_executed, ok=event.ok),
            start=_start_of(item, self._board.now),
            output=event.output,
            ok=event.ok,
            exit_code=_exit_code(event),
            files=tuple(file.name for file in event.files),
            not_executed=event.not_executed,
            diff=change.diff,
            added=change.added,
            removed=change.removed,
        )

    def _finish(self, place: int, change: CallEnded) -> None:
        item = self._item(place)
        state = item.state if item.state not in _OPEN else _state(item.not_executed, ok=change.ok)
        ran = change.duration_s or item.start is None or self._board.now is None
        duration = change.duration_s if ran else round((self._board.now or 0.0) - (item.start or 0.0), 3)
        duration = 0.0 if state == "not_executed" else duration
        self._board.end(place, ok=change.ok, state=state, duration_s=duration)

    # ── the user is asked ────────────────────────────────────────────────────────────────────────────────────

    def ask(self, event: ApprovalAsked) -> None:
        self._approvals[event.approval_id] = self._board.add_now(
            ApprovalItem,
            ends=False,
            approval_id=event.approval_id,
            tool_name=event.tool_name,
            command=event.command,
            directory=event.directory,
            reason=event.reason,
            requester=event.requester,
            requester_name=event.requester_name,
            call_id=event.call_id,
        )

    def answer(self, event: ApprovalAnswered) -> None:
        place = self._approvals.get(event.approval_id)
        if place is None:
            return
        item, now = self._board.items[place], self._board.now
        waited = round(now - item.start, 3) if now is not None and item.start is not None else None
        self._board.end(place, decision=event.decision, by=event.by, answer_reason=event.reason, waited_s=waited)

    # ── the run ends ─────────────────────────────────────────────────────────────────────────────────────────

    def end_all(self, *, completed: bool) -> None:
        """A call that was never begun in a run that completed is the client's to run."""
        for place in self._by_index.values():
            item = self._item(place)
            if item.state in _OPEN:
                state: ToolState = "returned" if completed and item.state == "waiting" else "failed"
                self._board.end(place, state=state)
        for place in self._approvals.values():
            approval = self._board.items[place]
            if isinstance(approval, ApprovalItem) and approval.decision is None:
                self._board.end(place)

    def unfinished_arguments(self, calls: Iterable[WrittenCall]) -> None:
        """Of a run under way: what the model has written of its calls so far."""
        for call in calls:
            self._board.change(self._by_index[call.index], arguments_text=call.text)


def _state(not_executed: NotExecuted | None, *, ok: bool) -> ToolState:
    return "not_executed" if not_executed is not None else "done" if ok else "failed"


def _start_of(item: ToolCallItem, end: float | None) -> float | None:
    """In a compacted log the beginning of a tool is gone, but not how long it took."""
    if item.state == "waiting" and item.duration_s is not None and end is not None:
        return max(0.0, round(end - item.duration_s, 3))
    return item.start


def _exit_code(event: ToolOutputRecorded) -> int | None:
    found = _EXIT.search(event.output[-64:])
    if found is None or event.not_executed is not None:
        return None
    return int(found[1]) if found[1] is not None else -int(found[2])
