"""A run's log as the `session/update` notifications of one turn, line by line.

Pure, a function of the entries: any cut of the log into batches gives the same bytes. A chunk of the answer becomes one
line, made of a prefix that is encoded once a message. An editor cannot be told to remove text: where an attempt is
withdrawn after its text was shown, a thought says so and the answer begins again under another `messageId`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, assert_never

import msgspec

from tailrace.events import ApprovalAsked, Entry, RunFinished, ToolOutputRecorded
from tailrace.integrations.acp import tool_updates
from tailrace.integrations.acp.tool_updates import Content
from tailrace.messages import File, Image, JsonObject, Message, Text, ToolCall, Usage
from tailrace.runs.view import RunView, changes
from tailrace.system.json_rpc.lines import rpc_line

_encode: Final = msgspec.json.Encoder().encode
META: Final = "tailrace"  # our key in `_meta`


class _Call(msgspec.Struct):
    """One tool call, as the editor shows it."""

    index: int
    tool: str
    args: JsonObject | None = None
    title: str = ""
    status: tool_updates.ToolStatus = "pending"


class LogToUpdates:
    """Reads one run. `loaded`: the editor has seen nothing of this turn, so the question and a failure are shown too.
    `directory` is where relative paths start. `context_tokens` is the size of the context, for its gauge; input of the
    providers in `cached_apart` is counted without what they had cached."""

    def __init__(
        self,
        session_id: str,
        run_id: str,
        *,
        directory: str = "",
        loaded: bool = False,
        context_tokens: int = 0,
        cached_apart: Collection[str] = (),
    ) -> None:
        self._session_id = session_id
        self._run_id = run_id
        self._directory = directory
        self._loaded = loaded
        self._context_tokens = context_tokens
        self._cached_apart = frozenset(cached_apart)
        self._view = RunView()
        self._messages = 0  # begun in this turn, thoughts and notices included
        self._text_prefix = b""  # of the lines of the message under way; empty where none is
        self._thought_prefix = b""
        self._message_id = ""
        self._calls: dict[int, _Call] = {}  # by index
        self._asked_about: dict[str, _Call] = {}  # by approval id
        self.stop = ""  # how the last answer ended
        self.last_text = ""  # of the last answer

    @property
    def finished(self) -> RunFinished | None:
        return self._view.finished

    @property
    def questions(self) -> Mapping[str, ApprovalAsked]:
        """Without an answer, by approval id."""
        return self._view.questions

    def feed(self, entries: Iterable[Entry]) -> bytes:
        """The lines that these entries add."""
        return b"".join([self._lines(change) for entry in entries for change in self._view.apply(entry)])

    def _lines(self, change: changes.Change) -> bytes:  # noqa: C901, PLR0912 - one case per change
        match change:
            case changes.TextGrew():
                return self._grown(change)
            case changes.ThoughtGrew(text=text):
                return self._thought_chunk(text) if text else b""
            case changes.TextWithdrawn():
                return self._withdrawn(change)
            case changes.CallWritten(index=index, call=called):
                return self._announced(index, called) if called is not None else b""
            case changes.CallRuns(index=index, tool_name=name, preview=preview, args=args):
                return self._started(index, name, preview, args)
            case changes.CallEnded(index=place, output=output, ok=ok):
                call = self._calls.get(place) if place is not None else None
                if call is None:
                    return b""
                return self._output(call, output) if output is not None else self._ended(call, ok)
            case changes.Asked(question=question, index=place):
                return self._asked(question, place)
            case changes.UserNotice(kind=kind, text=text, extra=extra):
                return self._notice(kind, text, extra)
            case changes.Spent(usage=usage, provider=provider):
                return self._usage(usage, provider)
            case changes.MessageJoined(message=message, stop=stop):
                return self._recorded(message, stop)
            case changes.HistoryReplaced(messages=messages) if self._loaded and not self._messages:
                return b"".join(map(self._said_before, messages))
            case changes.Ended(finished=finished):
                return self._finish(finished)
            case changes.Steered(steer=steer) if steer.state == "committed":
                self._end_message()
                return self._recorded(steer.accepted.message, "")
            case changes.Answered() | changes.Steered() | changes.Noticed():
                return b""
            case _:
                assert_never(change)

    # ── texts ────────────────────────────────────────────────────────────────────────────────────────────────

    def _grown(self, change: changes.TextGrew) -> bytes:
        if change.commentary:
            self._end_message()
        lines = self._message_chunk(change.text) if change.text or not change.ends else b""
        if change.ends:
            self._end_message()
        return lines

    def _message_chunk(self, text: str) -> bytes:
        if not self._text_prefix:
            self._message_id = self._next_message_id()
            self._text_prefix = self._chunk_prefix("agent_message_chunk", self._message_id)
            self._thought_prefix = b""
        return b"%b%b}}}}\n" % (self._text_prefix, _encode(text))

    def _thought_chunk(self, text: str) -> bytes:
        if not self._thought_prefix:
            self._thought_prefix = self._chunk_prefix("agent_thought_chunk", self._next_message_id())
        return b"%b%b}}}}\n" % (self._thought_prefix, _encode(text))

    def _end_message(self) -> None:
        self._text_prefix = self._thought_prefix = b""

    def _withdrawn(self, change: changes.TextWithdrawn) -> bytes:
        """Begins the answer again, with what other attempts wrote of it."""
        self._thought_prefix = b""
        if not change.shown:
            return b""
        self._end_message()
        why = f" ({change.reason})" if change.reason else ""
        meta = {"withdrawn": self._message_id}
        lines = self._notice_line(f"The answer above was withdrawn{why}; it begins again.", meta)
        return lines + b"".join([self._message_chunk(text) for _, text in change.kept])

    def _next_message_id(self) -> str:
        self._messages += 1
        return f"{self._run_id}.{self._messages}"

    def _chunk_prefix(self, kind: str, message_id: str) -> bytes:
        start = self._update({"sessionUpdate": kind, "messageId": message_id, "content": {"type": "text", "text": ""}})
        return start.removesuffix(b'""}}}}\n')

    def _notice(self, kind: str, text: str, extra: Mapping[str, Any]) -> bytes:
        if kind == "tool_progress":
            return self._progress(extra["index"], text)
        return self._notice_line(text, {"notice": kind}) if text else b""

    def _notice_line(self, text: str, meta: Mapping[str, str]) -> bytes:
        """What the user should know and is not part of the answer: the protocol has thoughts alone for that."""
        self._thought_prefix = b""
        update = {
            "sessionUpdate": "agent_thought_chunk",
            "messageId": self._next_message_id(),
            "content": {"type": "text", "text": f"{text}\n\n"},
            "_meta": {META: meta},
        }
        return self._update(update)

    def notice(self, text: str) -> bytes:
        """A line of this process's own, beside the log."""
        return self._notice_line(text, {"notice": "editor"})

    def _recorded(self, message: Message, stop: str) -> bytes:
        if message.role == "user":
            return self._question(message) if self._loaded else b""
        if message.role != "assistant":
            return b""
        self.stop, self.last_text = stop, message.text
        if message.tool_calls:
            self._end_message()
        return b""

    def _said_before(self, message: Message) -> bytes:
        """Of the conversation that a fork, or a client's own history, begins with: who said what, without the tools."""
        if message.role == "user":
            return self._question(message)
        lines = self._message_chunk(message.text) if message.role == "assistant" and message.text else b""
        self._end_message()
        return lines

    def _question(self, message: Message) -> bytes:
        message_id = self._next_message_id()
        return b"".join(
            self._update({"sessionUpdate": "user_message_chunk", "messageId": message_id, "content": block})
            for part in message.parts
            if (block := _block_of(part)) is not None
        )

    # ── tools ────────────────────────────────────────────────────────────────────────────────────────────────

    def _announced(self, index: int, called: ToolCall) -> bytes:
        call = self._calls[index] = _Call(index, called.name, called.parsed())
        call.title = tool_updates.title_of(called.name, None)
        shown = {"title": call.title, "kind": tool_updates.kind_of(called.name), "status": call.status}
        return self._call_line("tool_call", call, shown)

    def _started(self, index: int, tool: str, preview: str | None, args: JsonObject | None) -> bytes:
        call = self._calls.setdefault(index, _Call(index, tool))
        call.args, call.status = args, "in_progress"
        call.title = tool_updates.title_of(tool, args, preview)
        shown: dict[str, Any] = {"title": call.title, "status": call.status, "rawInput": args or {}}
        if locations := tool_updates.locations_of(tool, args, self._directory):
            shown["locations"] = locations
        if diff := tool_updates.patch_diff(tool, args, self._directory):
            shown["content"] = diff
        return self._call_line("tool_call_update", call, shown)

    def _asked(self, asked: ApprovalAsked, index: int | None) -> bytes:
        """What would run, in full; the question itself is put by `session/request_permission`."""
        call = self._calls.get(index) if index is not None else None
        if call is None:
            return b""
        self._asked_about[asked.approval_id] = call
        call.title = tool_updates.title_of(call.tool, None, asked.command)
        return self._call_line("tool_call_update", call, {"title": call.title, "content": question_content(asked)})

    def call_of(self, asked: ApprovalAsked) -> Content | None:
        """The call that is asked about, as `session/request_permission` names it."""
        call = self._asked_about.get(asked.approval_id)
        if call is None:
            return None
        shown = {"toolCallId": self._call_id(call), "title": call.title, "kind": tool_updates.kind_of(call.tool)}
        return {**shown, "status": "pending", "content": question_content(asked)}

    def _output(self, call: _Call, recorded: ToolOutputRecorded) -> bytes:
        begun = b""
        if self._loaded and call.status == "pending":  # the facts of an ended turn do not have its beginning
            begun = self._started(call.index, call.tool, None, call.args)
        call.status = "completed" if recorded.ok else "failed"
        if recorded.ok and recorded.change is not None and recorded.change.diff:
            content = [tool_updates.change_diff(recorded.change, self._directory)]
        else:
            content = tool_updates.output_content(call.tool, recorded.output, recorded.files)
        shown = {"status": call.status, "content": content, "rawOutput": {"output": recorded.output}}
        return begun + self._call_line("tool_call_update", call, shown)

    def _ended(self, call: _Call, ok: bool) -> bytes:
        """The end of a call without an output; an output comes first, and has set the status already."""
        if call.status in ("completed", "failed"):
            return b""
        call.status = "completed" if ok else "failed"
        return self._call_line("tool_call_update", call, {"status": call.status})

    def _progress(self, index: int, text: str) -> bytes:
        call = self._calls.get(index)
        if call is None:
            return b""
        shown = tool_updates.fenced(text) if tool_updates.kind_of(call.tool) == "execute" else text
        return self._call_line("tool_call_update", call, {"content": [tool_updates.text_content(shown)]})

    def _call_id(self, call: _Call) -> str:
        return f"{self._run_id}.call{call.index}"

    def _call_line(self, kind: str, call: _Call, shown: Mapping[str, Any]) -> bytes:
        return self._update({"sessionUpdate": kind, "toolCallId": self._call_id(call), **shown})

    # ── the whole turn ───────────────────────────────────────────────────────────────────────────────────────

    def _usage(self, usage: Usage, provider: str) -> bytes:
        if not self._context_tokens:
            return b""
        cached = usage.cache_read_tokens + usage.cache_write_tokens if provider in self._cached_apart else 0
        used = usage.input_tokens + cached + usage.output_tokens
        size = max(self._context_tokens, used)
        return self._update({"sessionUpdate": "usage_update", "used": used, "size": size})

    def _finish(self, finished: RunFinished) -> bytes:
        self._end_message()
        if not self._loaded or finished.error is None or finished.status == "completed":
            return b""
        return self._notice_line(f"The turn ended early: {finished.error.message}", {"notice": finished.status})

    def _update(self, update: Mapping[str, Any]) -> bytes:
        return update_line(self._session_id, update)


def update_line(session_id: str, update: Mapping[str, Any]) -> bytes:
    """One `session/update` notification."""
    params = {"sessionId": session_id, "update": update}
    return rpc_line({"jsonrpc": "2.0", "method": "session/update", "params": params})


def question_content(asked: ApprovalAsked) -> list[Content]:
    """Exactly what would happen, where, and why it is asked about."""
    where = f" (in {asked.directory})" if asked.directory else ""
    return [tool_updates.text_content(f"{tool_updates.fenced(asked.command)}\n{asked.reason}{where}")]


def _block_of(part: object) -> Content | None:
    """A part of the user's message as a content block."""
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Image(data=data, media_type=media_type) if data:
            return {"type": "image", "data": data, "mimeType": media_type}
        case Image(url=url):
            return {"type": "resource_link", "name": "image", "uri": url}
        case File(data=data, media_type=media_type, name=name) if data:
            resource = {"uri": f"file:///{name}", "mimeType": media_type, "blob": data}
            return {"type": "resource", "resource": resource}
        case File(url=url, name=name):
            return {"type": "resource_link", "name": name or url, "uri": url}
        case _:
            return None
