"""A run's log as the events of AG-UI 1.0, which any AG-UI front end takes.

Pure, a function of the entries and the request: any cut of the log into batches gives the same bytes. Each event has an
id, the entry's seq and its place among the events of that entry, so a client can go on behind any event.

AG-UI ends a run where it needs an answer, and the next request goes on from there. Ours waits: one run of the log is
therefore several of the client's, and `Stretch` says which of them is encoded.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeAlias, assert_never

import msgspec

from tailrace.agent.client_calls import client_call_id
from tailrace.agent.client_thread import message_id, run_of_message
from tailrace.events import (
    AnswerKept,
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    AttemptDiscarded,
    AttemptStarted,
    Commentary,
    Delivered,
    Entry,
    GatewayNotice,
    HistoryCompressed,
    LongToolHint,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    ReasoningChunk,
    RelayFact,
    RunFinished,
    RunForked,
    RunStarted,
    SequenceFact,
    Snapshot,
    ToolArgumentsChunk,
    ToolCallChunk,
    ToolCallFinished,
    ToolOutputRecorded,
    UsageRecorded,
    from_json,
)
from tailrace.integrations.ag_ui.view import (
    PROTOCOL,
    ClientView,
    ShownMessage,
    Stretch,
    answer_fields,
    frame,
    interrupt,
    usage_counts,
)
from tailrace.messages import JsonObject, Message, Reasoning, ToolCall, Usage
from tailrace.ports import StoredLine
from tailrace.server.frontends.calls_being_written import CallsBeingWritten, own_call_id
from tailrace.server.http.api_errors import ApiError, failed_run_error

_CHUNK: Final = b'{"type":"message_chunk","text":'  # a `MessageChunk` as it is stored, to its one field
_decode = msgspec.json.Decoder(str).decode
_TEXT: Final = b'id: %d.%d\ndata: {"type":"TEXT_MESSAGE_CONTENT","messageId":"%b","delta":%b}\n\n'
_ARGUMENTS: Final = b'id: %d.%d\ndata: {"type":"TOOL_CALL_ARGS","toolCallId":"%b","delta":%b}\n\n'
_NotShown: TypeAlias = AnswerKept | HistoryCompressed | RunForked | RelayFact | SequenceFact | Delivered | Snapshot


class AgUiEncoder:
    """Encodes one stretch of one run for one client. `foreign`: the names of the tools that the client runs.
    `counts_cache_apart`: whether this provider's count of input tokens leaves out the cached ones."""

    def __init__(
        self,
        run_id: str,
        view: ClientView,
        *,
        stretch: Stretch | None = None,
        foreign: Collection[str] = (),
        counts_cache_apart: Callable[[str], bool] = lambda _provider: False,
    ) -> None:
        self._run_id = run_id
        self._view = view
        self._stretch = stretch or Stretch()
        self._foreign = frozenset(foreign)
        self._counts_cache_apart = counts_cache_apart
        self._out: list[bytes] = []
        self._seq = self._number = 0  # of the next event
        self._begun = False  # the stretch has begun: events are sent
        self.ended = False  # it has ended: no event follows
        # messages
        self._messages: list[ShownMessage] = []
        self._answers = 0  # how many are recorded
        self._answer: ShownMessage | None = None  # that grows
        self._thought: ShownMessage | None = None
        self._text_id = b""  # of the text that is open at the client; empty: none
        self._is_thinking = False  # the thought is open at the client
        # tools
        self._calls: dict[str, str] = {}  # the provider's id of a call → the one that the client knows
        self._call_count = 0
        self._writing = CallsBeingWritten()
        self._pending: list[str] = []  # calls for the client to make
        self._steps: dict[str, JsonObject] = {}  # open, with their metadata
        self._model_calls = 0
        self._usage: dict[tuple[str, str], Usage] = {}

    @property
    def call_ids(self) -> dict[str, str]:
        """The ids by which the client knows the calls, by the provider's ids."""
        return dict(self._calls)

    @property
    def messages(self) -> list[JsonObject]:
        """What the client has of this run by now, as AG-UI messages."""
        return [shown.json() for shown in self._messages]

    def feed(self, entries: Iterable[Entry]) -> bytes:
        """The events of these entries, as server-sent events."""
        for entry in entries:
            self._take_entry(entry)
        return self._taken()

    def feed_lines(self, lines: Iterable[StoredLine]) -> bytes:
        """The same of entries as they are stored. Nearly all are pieces of a text or of a call's arguments: those are
        passed on undecoded."""
        for line in lines:
            seq, attempt, stored = line
            if self._text_id and self._answer is not None and not self.ended and stored.startswith(_CHUNK):
                self._seq, self._number = seq, 0
                text = stored[len(_CHUNK) : -1]
                self._answer.text.add(_decode(text), attempt)
                if self._sends():
                    self._out.append(_TEXT % (seq, 0, self._text_id, text))
            elif (call := self._writing.newest) is not None and (piece := call.stored_piece(stored)) is not None:
                self._seq, self._number = seq, 0
                if self._sends():
                    self._out.append(_ARGUMENTS % (seq, 0, call.shown_id.encode(), piece))
            else:
                self._take_entry(Entry(seq, from_json(stored), attempt))
        return self._taken()

    def _take_entry(self, entry: Entry) -> None:
        if not self.ended:
            self._seq, self._number = entry.seq, 0
            self._take(entry.event, entry.attempt)

    def _taken(self) -> bytes:
        data = b"".join(self._out)
        self._out.clear()
        return data

    def failure(self, error: ApiError) -> bytes:
        """What ends the stream where the server fails it: the run itself may go on."""
        return frame({"type": "RUN_ERROR", "message": str(error), "code": error.code})

    # ── events ───────────────────────────────────────────────────────────────────────────────────────────────

    def _sends(self) -> bool:
        """Whether the next event is sent: the stretch has begun, and the client does not have it yet."""
        after = self._view.after
        return self._begun and (after is None or (self._seq, self._number) > after)

    def _event(self, kind: str, **fields: object) -> None:
        if self._sends():
            id_line = b"id: %d.%d\n" % (self._seq, self._number)
            self._out.append(id_line + frame({"type": kind, **fields}))
        self._number += 1

    def _custom(self, name: str, **value: object) -> None:
        self._event("CUSTOM", name=f"tailrace.{name}", value=value)

    # ── what the entries say ─────────────────────────────────────────────────────────────────────────────────

    def _take(self, event: AnyEvent, attempt: int) -> None:
        match event:
            case RunStarted(at=at):
                if not self._stretch.start:
                    self._begin(at)
            case MessageChunk() | Commentary() | ReasoningChunk() | MessageStop() | MessageRecorded():
                self._take_text(event, attempt)
            case AttemptStarted() | AttemptDiscarded() | UsageRecorded():
                self._take_attempt(event, attempt)
            case ToolArgumentsChunk():
                self._write_call(event)
            case ToolCallChunk() | ToolCallFinished() | ToolOutputRecorded() | LongToolHint():
                self._take_tool(event)
            case ApprovalAsked():
                self._ask(event)
            case ApprovalAnswered():
                self._custom("approval", **answer_fields(self._run_id, event))
            case GatewayNotice(kind, text, extra):
                self._custom("notice", kind=kind, text=text, extra=extra)
            case RunFinished():
                self._finish(event)
            case _ if isinstance(event, _NotShown):
                pass
            case _:
                assert_never(event)

    def _begin(self, at: float = 0.0) -> None:
        view = self._view
        self._begun = True
        fields: JsonObject = {"threadId": view.thread_id, "runId": view.run_id, "protocolVersion": PROTOCOL}
        if at:
            fields["timestamp"] = int(at * 1000)
        self._event("RUN_STARTED", **fields, metadata={"tailrace": {"runId": self._run_id}})
        if view.state not in (None, {}):
            self._event("STATE_SNAPSHOT", snapshot=view.state)
        have = {shown.id for shown in self._messages}
        too_much = any(self._is_ours(message) and message["id"] not in have for message in view.messages)
        if view.resync or (too_much and view.after is None):
            self._out.append(frame({"type": "MESSAGES_SNAPSHOT", "messages": self._whole_list()}))
        for step, metadata in self._steps.items():
            self._event("STEP_STARTED", stepName=step, metadata=metadata)

    def _is_ours(self, message: JsonObject) -> bool:
        return run_of_message(str(message.get("id"))) == self._run_id

    def _whole_list(self) -> list[JsonObject]:
        """The client's own messages, and then what this run has shown. A thought of the client's that it has not shown
        by now is emptied: a client keeps the thoughts that a list leaves out."""
        have = {shown.id for shown in self._messages}
        others = [message for message in self._view.messages if not self._is_ours(message)]
        thoughts = [
            {"id": message["id"], "role": "reasoning", "content": ""}
            for message in self._view.messages
            if self._is_ours(message) and message.get("role") == "reasoning" and message["id"] not in have
        ]
        return [*others, *self.messages, *thoughts]

    # ── texts ────────────────────────────────────────────────────────────────────────────────────────────────

    def _take_text(
        self, event: MessageChunk | Commentary | ReasoningChunk | MessageStop | MessageRecorded, attempt: int
    ) -> None:
        match event:
            case MessageChunk(text):
                self._say(text, attempt)
            case Commentary(text):
                self._say(text, attempt)
                self._close_texts()
            case ReasoningChunk(text):
                self._think(text, attempt)
            case MessageStop():
                self._close_texts()
            case MessageRecorded(message):
                if message.role == "assistant":
                    self._record(message)
            case _:
                assert_never(event)

    def _say(self, text: str, attempt: int) -> None:
        self._close_thought()
        answer = self._open_answer()
        if not self._text_id:
            self._text_id = answer.id.encode()
            self._event("TEXT_MESSAGE_START", messageId=answer.id, role="assistant")
        answer.text.add(text, attempt)
        self._event("TEXT_MESSAGE_CONTENT", messageId=answer.id, delta=text)

    def _open_answer(self) -> ShownMessage:
        if self._answer is None:
            self._answer = ShownMessage(message_id(self._run_id, self._answers), "assistant")
            self._messages.append(self._answer)
        return self._answer

    def _think(self, text: str, attempt: int) -> None:
        if not self._view.reasoning:
            return
        self._close_text()
        if self._thought is None:
            self._thought = ShownMessage(message_id(self._run_id, self._answers, "r"), "reasoning")
            self._messages.append(self._thought)
        thought_id = self._thought.id
        if not self._is_thinking:
            self._is_thinking = True
            self._event("REASONING_START", messageId=thought_id)
            self._event("REASONING_MESSAGE_START", messageId=thought_id, role="reasoning")
        self._thought.text.add(text, attempt)
        self._event("REASONING_MESSAGE_CONTENT", messageId=thought_id, delta=text)

    def _close_text(self) -> None:
        if self._text_id:
            self._event("TEXT_MESSAGE_END", messageId=self._text_id.decode())
            self._text_id = b""

    def _close_thought(self) -> None:
        if self._is_thinking and self._thought is not None:
            self._event("REASONING_MESSAGE_END", messageId=self._thought.id)
            self._event("REASONING_END", messageId=self._thought.id)
            self._is_thinking = False

    def _close_texts(self) -> None:
        self._close_thought()
        self._close_text()

    def _record(self, message: Message) -> None:
        """The answer is whole. Its texts came in chunks, unless those are no longer kept."""
        if self._thought is None and self._answer is None:
            thoughts = "".join(part.text for part in message.parts if isinstance(part, Reasoning))
            if thoughts:
                self._think(thoughts, 0)
        if message.text and (self._answer is None or not self._answer.text):
            self._say(message.text, 0)
        self._close_texts()
        if not self._writing.became(message.tool_calls):
            self._withdraw_calls()
        written = {call.shown_id: call.text for call in self._writing.take_all()}
        for call in message.tool_calls:
            self._record_call(call, written)
        self._answers += 1
        self._answer = self._thought = None
        self._end_step(f"model#{self._model_calls}")

    def _record_call(self, call: ToolCall, written: Mapping[str, str]) -> None:
        """The call is whole. `written`: what the client has of the arguments, by the ids of its calls."""
        answer = self._open_answer()
        if call.name in self._foreign:
            shown_id = client_call_id(self._run_id, len(self._pending))
            self._pending.append(shown_id)
        else:
            shown_id = own_call_id(self._run_id, self._call_count)
        self._call_count += 1
        self._calls[call.id] = shown_id
        if (shown := written.get(shown_id)) is None:
            self._event("TOOL_CALL_START", toolCallId=shown_id, toolCallName=call.name, parentMessageId=answer.id)
        if not shown or len(shown) < len(call.arguments):
            self._event("TOOL_CALL_ARGS", toolCallId=shown_id, delta=call.arguments[len(shown or "") :])
        self._event("TOOL_CALL_END", toolCallId=shown_id)
        function = {"name": call.name, "arguments": call.arguments}
        answer.calls.append({"id": shown_id, "type": "function", "function": function})

    # ── attempts ─────────────────────────────────────────────────────────────────────────────────────────────

    def _take_attempt(self, event: AttemptStarted | AttemptDiscarded | UsageRecorded, attempt: int) -> None:
        match event:
            case AttemptStarted(provider, model):
                self._withdraw_calls()
                if f"model#{self._model_calls}" not in self._steps:
                    self._model_calls += 1
                    self._start_step(f"model#{self._model_calls}", provider=provider, model=model)
                else:
                    self._custom("attempt", number=attempt, provider=provider, model=model)
            case AttemptDiscarded():
                self._withdraw(attempt)
            case UsageRecorded(usage, provider, model):
                if self._begun:
                    spent = self._usage.get((provider, model), Usage())
                    self._usage[provider, model] = spent + usage
            case _:
                assert_never(event)

    def _withdraw(self, attempt: int) -> None:
        """AG-UI has no word for a text that is taken back: the client gets the whole list without it."""
        self._close_texts()
        withdrawn = [shown.text.withdraw(attempt) for shown in (self._answer, self._thought) if shown is not None]
        if any(withdrawn) or self._writing.calls:
            self._send_list()

    def _withdraw_calls(self) -> None:
        """The calls that are being written will not be made."""
        if self._writing.calls:
            self._close_texts()
            self._send_list()

    def _send_list(self) -> None:
        """Of calls that broke off the client hears the end when its list has them no more: it must not take them for
        calls to make."""
        if self._answer is not None and not self._answer.text:
            self._messages.remove(self._answer)
            self._answer = None
        self._event("MESSAGES_SNAPSHOT", messages=self._whole_list())
        for call in self._writing.take_all():
            self._event("TOOL_CALL_END", toolCallId=call.shown_id)

    # ── tools ────────────────────────────────────────────────────────────────────────────────────────────────

    def _take_tool(self, event: ToolCallChunk | ToolCallFinished | ToolOutputRecorded | LongToolHint) -> None:
        match event:
            case ToolCallChunk(name, preview, _, index):
                self._start_step(f"{name}#{index}", preview=preview)
            case ToolCallFinished(name, _, _, index):
                self._end_step(f"{name}#{index}")
            case ToolOutputRecorded():
                self._output(event)
            case LongToolHint(name, duration):
                self._custom("long_tool", toolName=name, durationS=duration)
            case _:
                assert_never(event)

    def _write_call(self, chunk: ToolArgumentsChunk) -> None:
        """A call that is not whole yet belongs to the message under way. The rest of a text that was held back may
        follow: it opens the text again."""
        recorded, foreign = self._call_count, len(self._pending)
        taken = self._writing.take_chunk(
            chunk, self._run_id, self._foreign, recorded=recorded, recorded_foreign=foreign
        )
        if taken is None:
            return
        call, begins = taken
        if begins:
            self._close_texts()
            parent = self._open_answer().id
            self._event(
                "TOOL_CALL_START", toolCallId=call.shown_id, toolCallName=call.tool_name, parentMessageId=parent
            )
        if chunk.text:
            self._event("TOOL_CALL_ARGS", toolCallId=call.shown_id, delta=chunk.text)

    def _output(self, recorded: ToolOutputRecorded) -> None:
        if (call_id := self._calls.get(recorded.call_id)) is None:
            return
        number = sum(shown.role == "tool" for shown in self._messages)
        shown = ShownMessage(message_id(self._run_id, number, "t"), "tool", recorded.output, toolCallId=call_id)
        self._messages.append(shown)
        fields: JsonObject = {}
        if not recorded.ok:
            refused = recorded.not_executed
            about = {"notExecuted": refused.kind, "reason": refused.reason} if refused is not None else {}
            fields["metadata"] = {"tailrace": {"ok": False, **about}}
        self._event(
            "TOOL_CALL_RESULT",
            messageId=shown.id,
            toolCallId=call_id,
            content=recorded.output,
            role="tool",
            **fields,
        )
        for place, file in enumerate(recorded.files):  # an activity: the client does not send it back each time
            data = base64.b64encode(file.data).decode()
            content = {"toolCallId": call_id, "name": file.name, "mimeType": file.media_type, "data": data}
            file_id = message_id(self._run_id, number * 1000 + place, "f")
            self._event("ACTIVITY_SNAPSHOT", messageId=file_id, activityType="tailrace.file", content=content)

    def _ask(self, asked: ApprovalAsked) -> None:
        if not self._begun and self._seq >= self._stretch.start:
            self._begin()
        if self._seq <= self._stretch.answered:
            return
        question = interrupt(self._run_id, asked, self._calls.get(asked.call_id))
        self._end({"type": "interrupt", "interrupts": [question]})

    # ── steps and ends ───────────────────────────────────────────────────────────────────────────────────────

    def _start_step(self, step: str, **about: object) -> None:
        if step in self._steps:
            return
        known = {name: value for name, value in about.items() if value}
        metadata = self._steps[step] = {"tailrace": known}
        self._event("STEP_STARTED", stepName=step, metadata=metadata)

    def _end_step(self, step: str) -> None:
        if self._steps.pop(step, None) is not None:
            self._event("STEP_FINISHED", stepName=step)

    def _finish(self, finished: RunFinished) -> None:
        match finished.status:
            case "completed":
                pending = {"pendingToolCallIds": self._pending} if self._pending else {}
                self._end({"type": "success", **pending}, finished.at)
            case "stopped":
                self._end({"type": "cancelled"}, finished.at)
            case "incomplete" | "failed":
                self._close_all()
                error = finished.error
                self._event(
                    "RUN_ERROR",
                    message=error.message if error is not None else "the run failed",
                    code=failed_run_error(finished).code if error is not None else finished.status,
                    usage=usage_counts(self._usage, self._counts_cache_apart),
                    metadata={"tailrace": {"runId": self._run_id, "status": finished.status}},
                )
                self.ended = True
            case _:
                assert_never(finished.status)

    def _end(self, outcome: JsonObject, at: float = 0.0) -> None:
        self._close_all()
        fields: JsonObject = {"threadId": self._view.thread_id, "runId": self._view.run_id, "outcome": outcome}
        if at:
            fields["timestamp"] = int(at * 1000)
        self._event("RUN_FINISHED", **fields, usage=usage_counts(self._usage, self._counts_cache_apart))
        self.ended = True

    def _close_all(self) -> None:
        self._close_texts()
        self._withdraw_calls()
        for step in [*self._steps]:
            self._end_step(step)
