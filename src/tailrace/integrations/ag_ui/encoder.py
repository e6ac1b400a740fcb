"""A run's log as the events of AG-UI 1.0, which any AG-UI front end takes.

Pure, a function of the entries and the request: any cut of the log into batches gives the same bytes. Each event has an
id, the entry's seq and its place among the events of that entry, so a client can go on behind any event. AG-UI ends a
run where it needs an answer. Ours waits: one run of the log is several of the client's, and `Stretch` says which.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterable
from typing import assert_never

from tailrace.events import Entry, RunFinished
from tailrace.integrations.ag_ui import view as client_view
from tailrace.integrations.ag_ui.view import ClientView, ShownMessage, Stretch
from tailrace.messages import JsonObject, Usage
from tailrace.runs.view import RunView, changes
from tailrace.server.frontends.client_thread import message_id, run_of_message
from tailrace.server.frontends.shown_runs import ShownCalls
from tailrace.server.http.api_errors import ApiError, failed_run_error


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
        self._log = RunView()
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
        self._calls = ShownCalls(run_id, foreign)
        self._provider_ids: dict[str, str] = {}  # the provider's id of a call → the one that the client knows
        self._outputs = 0
        self._pending: list[str] = []  # calls for the client to make
        self._steps: dict[str, JsonObject] = {}  # open, with their metadata
        self._model_calls = 0
        self._usage: dict[tuple[str, str], Usage] = {}

    @property
    def call_ids(self) -> dict[str, str]:
        """The ids by which the client knows the calls, by the provider's ids."""
        return dict(self._provider_ids)

    @property
    def messages(self) -> list[JsonObject]:
        """What the client has of this run by now, as AG-UI messages."""
        return [shown.json() for shown in self._messages]

    def feed(self, entries: Iterable[Entry]) -> bytes:
        """The events of these entries, as server-sent events."""
        for entry in entries:
            self._take_entry(entry)
        return self._taken()

    def _take_entry(self, entry: Entry) -> None:
        if not self.ended:
            self._seq, self._number = entry.seq, 0
            for change in self._log.apply(entry):
                self._take(change)

    def _taken(self) -> bytes:
        data = b"".join(self._out)
        self._out.clear()
        return data

    def failure(self, error: ApiError) -> bytes:
        """What ends the stream where the server fails it: the run itself may go on."""
        return client_view.frame({"type": "RUN_ERROR", "message": str(error), "code": error.code})

    # ── events ───────────────────────────────────────────────────────────────────────────────────────────────

    def _sends(self) -> bool:
        """Whether the next event is sent: the stretch has begun, and the client does not have it yet."""
        after = self._view.after
        return self._begun and (after is None or (self._seq, self._number) > after)

    def _event(self, kind: str, **fields: object) -> None:
        if self._sends():
            id_line = b"id: %d.%d\n" % (self._seq, self._number)
            self._out.append(id_line + client_view.frame({"type": kind, **fields}))
        self._number += 1

    def _custom(self, name: str, **value: object) -> None:
        self._event("CUSTOM", name=f"tailrace.{name}", value=value)

    # ── what changes ─────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, change: changes.Change) -> None:
        match change:
            case changes.TextGrew():
                self._grow(change)
            case changes.ThoughtGrew():
                self._think(change)
            case changes.TextWithdrawn():
                self._withdraw(change)
            case changes.CallWritten():
                self._write_call(change)
            case changes.CallRuns(tool_name=name, preview=preview, index=index):
                self._start_step(f"{name}#{index}", preview=preview)
            case changes.CallEnded():
                self._end_call(change)
            case changes.Asked():
                self._ask(change)
            case changes.Answered(answer=answer):
                self._custom("approval", **client_view.answer_fields(self._run_id, answer))
            case changes.Steered(steer=steer):
                self._custom("steer", steerId=steer.accepted.steer_id, state=steer.state, reason=steer.reason or "")
            case changes.Noticed():
                self._notice(change)
            case changes.Ended(finished=finished):
                self._finish(finished)
            case _:
                assert_never(change)

    def _notice(self, change: changes.Noticed) -> None:
        match change:
            case changes.RunBegan(started=started) if not self._stretch.start:
                self._begin(started.at)
            case changes.AttemptBegan(asked=asked):
                self._start_attempt(asked.provider, asked.model, change.attempt)
            case changes.MessageJoined(message=message) if message.role == "assistant":
                self._close_texts()
                self._answers += 1
                self._answer = self._thought = None
                self._end_step(f"model#{self._model_calls}")
            case changes.Spent(usage=usage, provider=provider, model=model) if self._begun:
                self._usage[provider, model] = self._usage.get((provider, model), Usage()) + usage
            case changes.UserNotice(kind=kind, text=text, extra=extra):
                self._custom("notice", kind=kind, text=text, extra=extra)
            case changes.ToolRunsLong(tool_name=name, duration_s=duration):
                self._custom("long_tool", toolName=name, durationS=duration)
            case _:
                pass

    def _begin(self, at: float = 0.0) -> None:
        view = self._view
        self._begun = True
        fields: JsonObject = {"threadId": view.thread_id, "runId": view.run_id, "protocolVersion": client_view.PROTOCOL}
        if at:
            fields["timestamp"] = int(at * 1000)
        self._event("RUN_STARTED", **fields, metadata={"tailrace": {"runId": self._run_id}})
        if view.state not in (None, {}):
            self._event("STATE_SNAPSHOT", snapshot=view.state)
        have = {shown.id for shown in self._messages}
        too_much = any(self._is_ours(message) and message["id"] not in have for message in view.messages)
        if view.resync or (too_much and view.after is None):
            self._out.append(client_view.frame({"type": "MESSAGES_SNAPSHOT", "messages": self._whole_list()}))
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

    def _grow(self, change: changes.TextGrew) -> None:
        if change.text or not change.ends:
            self._say(change.text, change.attempt)
        if change.ends:
            self._close_text()

    def _say(self, text: str, attempt: int) -> None:
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

    def _think(self, change: changes.ThoughtGrew) -> None:
        if change.ends:
            self._close_thought()
        if not change.text or not self._view.reasoning:
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
        self._thought.text.add(change.text, change.attempt)
        self._event("REASONING_MESSAGE_CONTENT", messageId=thought_id, delta=change.text)

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

    def _start_attempt(self, provider: str, model: str, number: int) -> None:
        if f"model#{self._model_calls}" not in self._steps:
            self._model_calls += 1
            self._start_step(f"model#{self._model_calls}", provider=provider, model=model)
        else:
            self._custom("attempt", number=number, provider=provider, model=model)

    def _withdraw(self, change: changes.TextWithdrawn) -> None:
        """AG-UI has no event that withdraws a text: the client gets the whole list without it. Calls that broke off end
        after that list, so that the client does not make them."""
        self._close_texts()
        shown = (self._answer, self._thought) if change.discarded else ()
        withdrawn = [each.text.withdraw(change.attempt) for each in shown if each is not None]
        if not any(withdrawn) and not change.calls:
            return
        if self._answer is not None and not self._answer.text:
            self._messages.remove(self._answer)
            self._answer = None
        self._event("MESSAGES_SNAPSHOT", messages=self._whole_list())
        for call in change.calls:
            self._event("TOOL_CALL_END", toolCallId=self._calls.drop(call.index))

    # ── tools ────────────────────────────────────────────────────────────────────────────────────────────────

    def _write_call(self, change: changes.CallWritten) -> None:
        """A call that is not whole yet belongs to the message under way. The rest of a text that was held back may
        follow: it opens the text again."""
        whole = change.call
        if change.begins or whole is not None:
            self._close_texts()
        answer = self._open_answer()
        if change.begins:
            shown_id = self._calls.begin(change.index, change.tool_name)
            self._event(
                "TOOL_CALL_START", toolCallId=shown_id, toolCallName=change.tool_name, parentMessageId=answer.id
            )
        else:
            shown_id = self._calls.id_of(change.index) or ""
        if change.text or (whole is not None and not whole.arguments):
            self._event("TOOL_CALL_ARGS", toolCallId=shown_id, delta=change.text)
        if whole is not None:
            self._event("TOOL_CALL_END", toolCallId=shown_id)
            self._provider_ids[whole.id] = shown_id
            if self._calls.is_foreign(change.index):
                self._pending.append(shown_id)
            function = {"name": whole.name, "arguments": whole.arguments}
            answer.calls.append({"id": shown_id, "type": "function", "function": function})

    def _end_call(self, change: changes.CallEnded) -> None:
        recorded, call_id = change.output, self._calls.id_of(change.index)
        if recorded is None:
            self._end_step(f"{change.tool_name}#{change.index}")
            return
        if call_id is None:
            return
        number, self._outputs = self._outputs, self._outputs + 1
        shown = ShownMessage(message_id(self._run_id, number, "t"), "tool", recorded.output, toolCallId=call_id)
        self._messages.append(shown)
        fields: JsonObject = {}
        if not recorded.ok:
            refused = recorded.not_executed
            about = {"notExecuted": refused.kind, "reason": refused.reason} if refused is not None else {}
            fields["metadata"] = {"tailrace": {"ok": False, **about}}
        self._event(
            "TOOL_CALL_RESULT", messageId=shown.id, toolCallId=call_id, content=recorded.output, role="tool", **fields
        )
        for place, file in enumerate(recorded.files):  # an activity: the client does not send it back each time
            data = base64.b64encode(file.data).decode()
            content = {"toolCallId": call_id, "name": file.name, "mimeType": file.media_type, "data": data}
            file_id = message_id(self._run_id, number * 1000 + place, "f")
            self._event("ACTIVITY_SNAPSHOT", messageId=file_id, activityType="tailrace.file", content=content)

    def _ask(self, change: changes.Asked) -> None:
        if not self._begun and self._seq >= self._stretch.start:
            self._begin()
        if self._seq <= self._stretch.answered:
            return
        question = client_view.interrupt(self._run_id, change.question, self._calls.id_of(change.index))
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
                    usage=client_view.usage_counts(self._usage, self._counts_cache_apart),
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
        self._event("RUN_FINISHED", **fields, usage=client_view.usage_counts(self._usage, self._counts_cache_apart))
        self.ended = True

    def _close_all(self) -> None:
        self._close_texts()
        for step in [*self._steps]:
            self._end_step(step)
