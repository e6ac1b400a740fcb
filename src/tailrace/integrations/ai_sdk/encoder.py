"""A run's log as the AI SDK's UI message stream (version 1): one assistant message, grown chunk by chunk.

Pure, a function of the entries alone: any cut of the log into batches gives the same bytes, so a stream that is resumed
replays exactly what the first one sent. The chunks have no field that a strict reader of the protocol's first version
refuses: clients of the AI SDK 5 check each of them. What that version does not support is metadata of the message.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, Literal, assert_never

import msgspec

from tailrace import events
from tailrace.integrations.ai_sdk import parts
from tailrace.integrations.ai_sdk.metadata import WAITING, end_metadata, finish_reason, start_metadata
from tailrace.integrations.ai_sdk.parts import ToolPart
from tailrace.messages import JsonObject, Message, SpentTokens, ToolResult, Usage
from tailrace.runs.view import RunView, changes
from tailrace.server.frontends.shown_runs import moment, token_counts

# How a page answers approvals: by the tool's own part, which ends the stream until then (AI SDK 6), or by
# `POST /runs/{id}/approval`, with the question as a data part (any version).
ApprovalStyle = Literal["parts", "data"]
DONE: Final = b"data: [DONE]\n\n"
_DELTA: Final = b'data: {"type":"%b-delta","id":"%b","delta":%b}\n\n'
_DENIED: Final = frozenset({"denied", "no_answer", "no_one_to_ask"})
_encode = msgspec.json.Encoder().encode


class _Part(msgspec.Struct):
    """The text or the reasoning that grows now."""

    kind: bytes
    id: bytes
    attempt: int


class UiMessageEncoder:
    """Encodes one message: the entries of a run, and of those that continue it with results of the client's own tools.

    `reasoning`: what the model thought is shown. `whole`: texts come when they are complete. `answered`: approvals that
    are known to be answered, so that the stream does not end with their question. `counts_cache_apart`: as in
    `token_counts`.
    """

    def __init__(
        self,
        message_id: str,
        *,
        reasoning: bool = True,
        approvals: ApprovalStyle = "parts",
        whole: bool = False,
        answered: Collection[str] = (),
        counts_cache_apart: Callable[[str], bool] = lambda _provider: False,
    ) -> None:
        self._message_id = message_id
        self._reasoning = reasoning
        self._approvals = approvals
        self._whole = whole
        self._answered_before = set(answered)
        self._counts_cache_apart = counts_cache_apart
        self._out: list[bytes] = []
        self._begun = False
        # the run
        self._run_id = ""
        self._log = RunView()
        self._tools = parts.ToolParts()
        self._new_parts: list[ToolPart] = []  # of the answer that is being recorded
        self._client_ids: dict[str, str] = {}  # of the client's calls: the provider's id → ours
        # the step: one answer of the model and its tools
        self._in_step = False
        self._recorded = False  # the answer is whole: the next text begins another step
        self._attempts: list[str] = []  # of this answer: who was asked
        self._part: _Part | None = None
        self._parts = 0
        # approvals
        self._asked: dict[str, ToolPart] = {}
        self._running: set[int] = set()
        self.seq = 0  # of the last entry that was read
        self.paused = False  # nothing goes on before the user has answered: the entries after this are not read
        # the end
        self._pages: set[str] = set()
        self._stop = ""
        self._usage = Usage()
        self._counted_apart = 0  # cached tokens that it does not have among the input
        self._model = ""
        self.spent: list[SpentTokens] = []
        self.finished: events.RunFinished | None = None

    # ── the log ──────────────────────────────────────────────────────────────────────────────────────────────

    def begin_run(self, run_id: str, foreign: Collection[str] = ()) -> None:
        """The entries that follow are this run's. `foreign`: the names of the tools that the client runs."""
        self._run_id, self._log, self._tools = run_id, RunView(), parts.ToolParts(run_id, foreign)
        self._running.clear()
        self.finished = None

    def feed(self, entries: Iterable[events.Entry]) -> bytes:
        """The chunks of these entries, as server-sent events."""
        for entry in entries:
            self._advance(entry)
        return self._taken()

    def go_on(self, answered: Collection[str]) -> bool:
        """Whether the log goes on behind the questions that the stream has paused at: these are answered. The entries
        after `seq` are to be read again then."""
        self._answered_before.update(answered)
        self.paused = self._waits()
        return not self.paused

    def _waits(self) -> bool:
        """Whether the page was asked something to which no answer is known."""
        return any(key in self._asked and key not in self._answered_before for key in self._log.questions)

    def _advance(self, entry: events.Entry) -> None:
        if not self.paused:
            if not self._whole or not isinstance(entry.event, events.PIECES):
                for change in self._log.apply(entry):
                    self._take(change)
            self.seq = entry.seq
            self.paused = not self._running and self._approvals == "parts" and self._waits()

    def skip(self, entries: Sequence[events.Entry], approval_ids: Collection[str] = ()) -> int:
        """Takes in what the client has already: these entries, or where it was asked for approvals, those up to the end
        of the stream that asked it. Returns how many they were. `restart` begins the rest."""
        missing, taken = set(approval_ids), 0
        for entry in entries:
            for change in self._log.apply(entry):
                self._take(change)
                if isinstance(change, changes.Asked):
                    missing.discard(change.question.approval_id)
            taken += 1
            if approval_ids and not missing and not self._running:
                break
        self._taken()
        return taken

    def restart(self) -> bytes:
        """The beginning of a stream that goes on with a message; the client has the results that it gave itself."""
        self._begun = True
        self._client_ids = {}
        self._add("start", messageId=self._message_id, messageMetadata={"runId": self._run_id})
        return self._taken()

    def close(self, *, cost_usd: float | None = None) -> bytes:
        """What ends the stream of a run that has ended, or of one that waits for an approval."""
        finished = self.finished
        if self._in_step:
            self._add("finish-step")
        if finished is None:
            self._add("finish", messageMetadata=WAITING)
            return self._taken() + DONE
        calls_client = any(call.foreign and call.shown for call in self._tools.made.values())
        tokens = token_counts(self._usage, counted_apart=self._counted_apart)
        metadata = end_metadata(finished, tokens, self._model, finish_reason(finished, self._stop, calls_client))
        if cost_usd is not None:
            metadata["costUsd"] = cost_usd
        match finished.status:
            case "completed" | "incomplete":
                self._add("finish", messageMetadata=metadata)
            case "stopped":
                self._add("message-metadata", messageMetadata=metadata)
                self._add("abort")
            case "failed":
                self._add("message-metadata", messageMetadata=metadata)
                self._add("error", errorText=finished.error.message if finished.error else "the run failed")
        return self._taken() + DONE

    def _taken(self) -> bytes:
        data = b"".join(self._out)
        self._out.clear()
        return data

    def _add(self, kind: str, **fields: object) -> None:
        self._put({"type": kind, **fields})

    def _put(self, *chunks: JsonObject) -> None:
        self._out += [b"data: %b\n\n" % _encode(chunk) for chunk in chunks]

    # ── what changes ─────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, change: changes.Change) -> None:
        match change:
            case changes.TextGrew(text=text, attempt=attempt, ends=ends):
                if text:
                    self._grow(b"text", text, attempt)
                if ends:
                    self._end_part()
            case changes.ThoughtGrew(text=text, attempt=attempt):
                if text and self._reasoning:
                    self._grow(b"reasoning", text, attempt)
            case changes.TextWithdrawn():
                self._withdraw(change)
            case changes.CallWritten():
                self._write_call(change)
            case changes.CallRuns() | changes.CallEnded() | changes.Asked() | changes.Answered():
                self._take_call(change)
            case changes.Steered():
                pass  # the front end has the message: its user typed it
            case changes.Noticed():
                self._take_notice(change)
            case changes.Ended(finished=finished):
                self._finish(finished)
            case _:
                assert_never(change)

    def _take_notice(self, change: changes.Noticed) -> None:
        match change:
            case changes.MessageJoined(message=message, stop=stop):
                self._record(message, stop)
            case changes.AttemptBegan(asked=asked, attempt=attempt):
                self._begin_attempt(asked.provider, asked.model, attempt)
            case changes.Spent(usage=usage, provider=provider, model=model):
                self.spent.append(SpentTokens(provider, model, usage))
                if self._counts_cache_apart(provider):
                    self._counted_apart += usage.cached_tokens
            case changes.UserNotice(kind=kind, text=text, extra=extra):
                self._notice(kind, text, extra)
            case changes.ToolRunsLong(tool_name=name, duration_s=duration):
                text = f"{name} is still running after {duration:.0f} s"
                self._notice("long_tool", text, {"tool_name": name, "duration_s": duration})
            case changes.RunBegan(started=started):
                self._begin(started)
            case _:
                pass

    def _begin(self, started: events.RunStarted) -> None:
        if self._begun:
            self._add("message-metadata", messageMetadata={"runId": self._run_id})
            return
        self._begun = True
        self._add("start", messageId=self._message_id, messageMetadata=start_metadata(self._run_id, started))

    def _finish(self, finished: events.RunFinished) -> None:
        self._end_part()
        self._usage += finished.usage
        self.finished = finished
        self._put(*self._tools.finish(completed=finished.status == "completed"))

    # ── texts ────────────────────────────────────────────────────────────────────────────────────────────────

    def _goes_on(self, kind: bytes) -> bool:
        return self._part is not None and self._part.kind == kind

    def _grow(self, kind: bytes, text: str, attempt: int) -> None:
        if not self._goes_on(kind):
            self._step()
            self._end_part()
            self._parts += 1
            self._part = _Part(kind, b"%d" % self._parts, attempt)
            self._add(f"{kind.decode()}-start", id=self._part.id.decode())
        self._out.append(_DELTA % (kind, b"%d" % self._parts, _encode(text)))

    def _end_part(self, *, discarded: bool = False) -> None:
        """`discarded`: what the part shows was withdrawn. The protocol cannot say so: pages read the metadata."""
        part, self._part = self._part, None
        if part is None:
            return
        fields: JsonObject = {"id": part.id.decode()}
        if discarded:
            fields["providerMetadata"] = {"tailrace": {"discarded": True}}
        self._add(f"{part.kind.decode()}-end", **fields)

    def _step(self) -> None:
        """What follows belongs to an answer of the model."""
        if self._in_step and self._recorded:
            self._end_part()
            self._add("finish-step")
            self._in_step = False
        if not self._in_step:
            self._in_step, self._recorded = True, False
            self._add("start-step")

    def _record(self, message: Message, stop: str) -> None:
        if message.role == "tool":
            self._client_results(message)
        if message.role != "assistant":
            return
        self._step()
        self._end_part()
        self._recorded, self._stop = True, stop
        self._attempts.clear()
        for url, title in parts.web_sources(message):
            self._page(url, title)
        for number, (name, media_type) in enumerate(parts.document_sources(message), 1):
            source = f"document-{self._parts}-{number}"
            self._add("source-document", sourceId=source, mediaType=media_type, title=name, filename=name)
        self._client_ids = {part.call.id: part.part_id for part in self._new_parts if part.foreign}
        self._new_parts = []

    def _page(self, url: str, title: str = "") -> None:
        if url not in self._pages:
            self._pages.add(url)
            source = f"page-{len(self._pages)}"
            self._add("source-url", sourceId=source, url=url, **({"title": title} if title else {}))

    # ── tools ────────────────────────────────────────────────────────────────────────────────────────────────

    def _take_call(self, change: changes.CallRuns | changes.CallEnded | changes.Asked | changes.Answered) -> None:
        match change:
            case changes.CallRuns(index=index, args=args):
                if (call := self._tools.made.get(index)) is not None:
                    self._put(*self._tools.show(call, args if args is not None else call.arguments))
                    self._running.add(index)
            case changes.CallEnded(index=int(index), output=events.ToolOutputRecorded() as output):
                if (call := self._tools.made.get(index)) is not None:
                    self._running.discard(index)
                    self._output(call, output)
            case changes.CallEnded():
                pass
            case changes.Asked(question=asked, index=place):
                if place is not None and (call := self._tools.made.get(place)) is not None:
                    self._ask(call, asked)
            case changes.Answered(answer=answer):
                if (part := self._asked.get(answer.approval_id)) is not None:
                    why = {"deniedBecause": answer.reason} if answer.reason else {}
                    given = {"decision": answer.decision, "by": answer.by, **why}
                    self._approval_part(answer.approval_id, part, given)
            case _:
                assert_never(change)

    def _write_call(self, change: changes.CallWritten) -> None:
        """The text before a call stays open: more of it may still come."""
        if change.call is not None:
            self._step()
            self._new_parts.append(self._tools.record(change.index, change.call))
        else:
            if change.begins:
                self._step()
                if self._goes_on(b"reasoning"):
                    self._end_part()
            self._put(*self._tools.write(change))

    def _output(self, call: ToolPart, recorded: events.ToolOutputRecorded) -> None:
        if not call.shown:
            self._put(*self._tools.show(call, call.arguments))
        refused = recorded.not_executed
        if refused is not None and refused.kind in _DENIED and call.asked and self._approvals == "parts":
            self._add("tool-output-denied", toolCallId=call.part_id)
        else:
            self._put(parts.output_of(call.part_id, recorded))
        self._put(*parts.files_of(recorded))
        if recorded.ok and (url := parts.fetched_page(call.call)):
            self._page(url)

    def _client_results(self, message: Message) -> None:
        """They are shown to a client that did not run its tools itself."""
        for part in message.parts:
            if isinstance(part, ToolResult) and (client_id := self._client_ids.get(part.call_id)):
                self._put(parts.client_result(client_id, part))

    def _ask(self, call: ToolPart, asked: events.ApprovalAsked) -> None:
        if not call.shown:
            self._put(*self._tools.show(call, call.arguments))
        self._asked[asked.approval_id] = call
        call.asked = True
        what = {"command": asked.command, "directory": asked.directory, "reason": asked.reason}
        if asked.expires_at:
            what["expiresAt"] = moment(asked.expires_at)
        self._approval_part(asked.approval_id, call, what)
        if self._approvals == "parts":
            self._add("tool-approval-request", approvalId=asked.approval_id, toolCallId=call.part_id)

    def _approval_part(self, approval_id: str, call: ToolPart, fields: JsonObject) -> None:
        """The question and then its answer: the later part with this id replaces the earlier one."""
        data = {"approvalId": approval_id, "runId": self._run_id, "toolCallId": call.part_id}
        self._add("data-approval", id=approval_id, data={**data, "toolName": call.call.name, **fields})

    # ── what goes on beside the answer ───────────────────────────────────────────────────────────────────────

    def _begin_attempt(self, provider: str, model: str, attempt: int) -> None:
        self._model = f"{provider}/{model}" if provider else model
        if self._attempts and not self._recorded:
            kind = "retry" if self._attempts[-1] == self._model else "failover"
            extra = {"provider": provider, "model": model, "attempt": attempt}
            self._notice(kind, f"Asking {self._model} …", extra)
        self._attempts.append(self._model)

    def _withdraw(self, change: changes.TextWithdrawn) -> None:
        self._put(*self._tools.break_off(change.calls))
        if not change.discarded:
            return
        if self._part is not None and self._part.attempt == change.attempt:
            self._end_part(discarded=True)

    def _notice(self, kind: str, text: str, extra: JsonObject) -> None:
        """For the moment: a transient part is shown and becomes no part of the message."""
        self._add("data-notice", data={**extra, "kind": kind, "text": text}, transient=True)
