"""What an AG-UI client has, and what it asks to be shown: values of `encoder`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from tailrace.events import ApprovalAnswered, ApprovalAsked
from tailrace.events.attempt_text import AttemptText
from tailrace.messages import JsonObject, Usage
from tailrace.server.frontends.shown_runs import moment, token_counts

PROTOCOL: Final = "1.0"
_encode = msgspec.json.Encoder().encode
_ANSWER: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "decision": {"enum": ["once", "session", "always", "deny"]},
        "reason": {"type": "string"},
    },
    "anyOf": [{"required": ["approved"]}, {"required": ["decision"]}],
}
_INTERRUPT: Final = re.compile(r"(run_[0-9a-f]+)\.(apr_[0-9a-f]+)")


class Stretch(msgspec.Struct, frozen=True):
    """Which part of a run one request shows: what comes after the entry `start`. Approvals up to the entry `answered`
    do not end it."""

    start: int = 0
    answered: int = 0


class ClientView(msgspec.Struct, frozen=True):
    """The request, as far as its events depend on it. `messages` is the client's list as it sent it. With `resync` the
    stream begins with the whole list. `after`: the client has the events up to this id."""

    thread_id: str
    run_id: str
    messages: Sequence[JsonObject] = ()
    state: Any = None
    reasoning: bool = False
    resync: bool = False
    after: tuple[int, int] | None = None


class ShownMessage:
    """A message of this run, as the client has it by now."""

    __slots__ = ("calls", "content", "fields", "id", "role", "text")

    def __init__(self, made_id: str, role: str, content: str | None = None, **fields: object) -> None:
        self.id, self.role, self.content, self.fields = made_id, role, content, fields
        self.text = AttemptText()
        self.calls: list[JsonObject] = []

    def json(self) -> JsonObject:
        content = self.text.text if self.content is None else self.content
        shown: JsonObject = {"id": self.id, "role": self.role, **self.fields}
        if content or not self.calls:
            shown["content"] = content
        return {**shown, "toolCalls": self.calls} if self.calls else shown


def interrupt_id(run_id: str, approval_id: str) -> str:
    """The id of an approval at the client: it names the run that waits for it."""
    return f"{run_id}.{approval_id}"


def interrupt(run_id: str, asked: ApprovalAsked, call_id: str | None) -> JsonObject:
    """The question as AG-UI puts it. `call_id`: the call at the client."""
    question: JsonObject = {
        "id": interrupt_id(run_id, asked.approval_id),
        "reason": "tool_call",
        "message": f"Allow {asked.tool_name}? {asked.command}" + (f" ({asked.reason})" if asked.reason else ""),
        "responseSchema": _ANSWER,
        "metadata": {
            "tailrace": {
                "runId": run_id,
                "approvalId": asked.approval_id,
                "toolName": asked.tool_name,
                "command": asked.command,
                "directory": asked.directory,
                "reason": asked.reason,
            }
        },
    }
    if asked.expires_at:
        question["expiresAt"] = moment(asked.expires_at)
    return question if call_id is None else {**question, "toolCallId": call_id}


def answer_fields(run_id: str, answered: ApprovalAnswered) -> JsonObject:
    """The answer, for clients that did not give it."""
    fields: JsonObject = {
        "interruptId": interrupt_id(run_id, answered.approval_id),
        "decision": answered.decision,
        "by": answered.by,
    }
    return {**fields, "reason": answered.reason} if answered.reason else fields


def run_and_approval(interrupt: str) -> tuple[str, str] | None:
    """The reverse: the run and its approval; None where this server made no such id."""
    found = _INTERRUPT.fullmatch(interrupt)
    return (found[1], found[2]) if found else None


def frame(event: JsonObject) -> bytes:
    """As a server-sent event."""
    return b"data: %b\n\n" % _encode(event)


def opened_thread(view: ClientView) -> bytes:
    """A whole stream of a thread in which nothing runs: its messages."""
    named: JsonObject = {"threadId": view.thread_id, "runId": view.run_id}
    events: list[JsonObject] = [{"type": "RUN_STARTED", **named, "protocolVersion": PROTOCOL}]
    if view.state not in (None, {}):
        events.append({"type": "STATE_SNAPSHOT", "snapshot": view.state})
    events.append({"type": "MESSAGES_SNAPSHOT", "messages": [*view.messages]})
    events.append({"type": "RUN_FINISHED", **named, "outcome": {"type": "success"}})
    return b"".join(map(frame, events))


def usage_counts(
    usage_by_model: Mapping[tuple[str, str], Usage], counts_cache_apart: Callable[[str], bool]
) -> list[JsonObject]:
    """For each provider and model. AG-UI counts cached tokens among the input."""
    spent: list[JsonObject] = []
    for (provider, model), usage in usage_by_model.items():
        apart = usage.cached_tokens if counts_cache_apart(provider) else 0
        counts = token_counts(usage, counted_apart=apart)
        counts["cacheWriteInputTokens"] = usage.cache_write_tokens
        spent.append({"provider": provider, "model": model, **counts})
    return spent
