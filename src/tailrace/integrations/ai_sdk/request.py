"""The body of `POST /ui/chat`, as the AI SDK's transport and pages of their own send it, and what is new in it.

Values only. Pages repeat the whole conversation; of it the last message alone is read: a question, results of the
page's own tools, or answers to approvals.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from tailrace.agent.turn_spec import Busy
from tailrace.integrations.ai_sdk.encoder import ApprovalStyle
from tailrace.messages import File, Image, JsonObject, Message, Part, Text, ToolResult, ToolSpec
from tailrace.server.http.api_errors import ApiError
from tailrace.wire.openai_request import DATA_URL, image_of
from tailrace.wire.peer_json import object_of, text_of

Name = Annotated[str, Meta(max_length=256)]
ChatId = Annotated[str, Meta(min_length=1, max_length=256)]
ToolName = Annotated[str, Meta(min_length=1)]
Trigger = Literal["submit-message", "regenerate-message"]


class UiMessage(msgspec.Struct, frozen=True):
    """`parts` are read as far as they are known: pages have parts of their own."""

    role: Literal["system", "user", "assistant"]
    id: Name = ""
    parts: tuple[JsonObject, ...] = ()


class UiChatBody(msgspec.Struct, frozen=True, rename="camel"):
    """`id` is the chat's, and the session's. Either `messages`, of which the last counts, or `message` alone.

    Of our own: `model`, `system`, `tools` (those that the page runs), `reasoning` (false: what the model thought is not
    shown), `approvals` (`data`: asked by data parts alone), `decision` (how long a yes of the page's holds),
    `busy` (what the message does to a run under way). Other fields are the page's own."""

    id: ChatId
    messages: tuple[UiMessage, ...] = ()
    message: UiMessage | None = None
    trigger: Trigger = "submit-message"
    message_id: Name | None = None
    model: Name = ""
    system: str = ""
    tools: dict[ToolName, JsonObject] = {}  # by name
    reasoning: bool = True
    approvals: ApprovalStyle = "parts"
    decision: Literal["once", "session", "always"] = "once"
    busy: Busy = "interrupt"

    @property
    def last(self) -> UiMessage | None:
        return self.message if self.message is not None else self.messages[-1] if self.messages else None

    @property
    def where(self) -> str:
        """The place of the last message in the body."""
        return "message" if self.message is not None else f"messages[{len(self.messages) - 1}]"


class ApprovalResponse(NamedTuple):
    approval_id: str
    approved: bool
    reason: str = ""  # of a denial


# ── a question ───────────────────────────────────────────────────────────────────────────────────────────────


def question_of(message: UiMessage, where: str) -> Message:
    """Raises `ApiError` 400 where nothing is asked, `InvalidRequest` for a file that no model can be given."""
    question = Message("user", tuple(_parts(message, where)))
    if question.is_blank:
        raise ApiError(400, f"{where}: nothing was asked", param=where)
    return question


def _parts(message: UiMessage, where: str) -> Iterator[Part]:
    for number, part in enumerate(message.parts):
        match part:
            case {"type": "text", "text": str(text)}:
                yield Text(text)
            case {"type": "file", "url": str(url)}:
                yield _file(url, part, f"{where}.parts[{number}].url")
            case _:
                pass  # a data part, or one that only the page knows


def _file(url: str, part: JsonObject, where: str) -> Part:
    media_type, name = text_of(part.get("mediaType")), text_of(part.get("filename"))
    if (inline := DATA_URL.fullmatch(url)) is not None:
        media_type = inline["media_type"] or media_type or "text/plain"
        data = _base64(inline["data"], where)
        if media_type.startswith("image/"):
            return Image(data=data, media_type=media_type)
        return File(data=data, media_type=media_type, name=name)
    if media_type.startswith("image/"):
        return image_of(url, None, where)
    if url.partition(":")[0].lower() not in ("http", "https"):
        raise ApiError(400, f"{where}: a file's address is https:, http: or data: with base64", param=where)
    return File(url=url, media_type=media_type, name=name)


def _base64(data: str, where: str) -> str:
    """Raises `ApiError` 400."""
    try:
        base64.b64decode(data, validate=True)
    except ValueError as exc:
        raise ApiError(400, f"{where}: what follows base64, is not base64", param=where) from exc
    return data


def system_of(body: UiChatBody) -> str:
    """What the page tells the model beforehand."""
    said = (part.text for m in body.messages if m.role == "system" for part in _parts(m, "") if isinstance(part, Text))
    return "\n\n".join(filter(None, (body.system, *said)))


# ── answers to what the message before asked ─────────────────────────────────────────────────────────────────


def _tool_parts(message: UiMessage) -> Iterator[JsonObject]:
    for part in message.parts:
        kind = text_of(part.get("type"))
        if kind == "dynamic-tool" or kind.startswith("tool-"):
            yield part


def approval_responses(message: UiMessage) -> list[ApprovalResponse]:
    """The questions that the user has answered."""
    found: list[ApprovalResponse] = []
    for part in _tool_parts(message):
        approval = object_of(part.get("approval"))
        if part.get("state") == "approval-responded" and (approval_id := text_of(approval.get("id"))):
            found.append(
                ApprovalResponse(approval_id, approval.get("approved") is True, text_of(approval.get("reason")))
            )
    return found


def tool_results(message: UiMessage) -> list[ToolResult]:
    """What the page's own tools gave, under the ids that the page knows."""
    found: list[ToolResult] = []
    for part in _tool_parts(message):
        call_id = text_of(part.get("toolCallId"))
        if not call_id or part.get("providerExecuted") is True:
            continue
        match part.get("state"):
            case "output-available" if part.get("preliminary") is not True:
                output = part.get("output")
                text = output if isinstance(output, str) else msgspec.json.encode(output).decode()
                found.append(ToolResult(call_id, text))
            case "output-error":
                found.append(ToolResult(call_id, text_of(part.get("errorText")) or "the tool failed", ok=False))
            case _:
                pass
    return found


# ── the page's own tools ─────────────────────────────────────────────────────────────────────────────────────


def tools_of(body: UiChatBody) -> tuple[ToolSpec, ...]:
    specs: list[ToolSpec] = []
    for name, tool in body.tools.items():
        spec = ToolSpec(name, text_of(tool.get("description")))
        if schema := _schema_of(tool):
            spec = msgspec.structs.replace(spec, parameters=schema)
        specs.append(spec)
    return tuple(specs)


def _schema_of(tool: JsonObject) -> JsonObject:
    """`jsonSchema`: how a schema object of the AI SDK is written as JSON."""
    schema = object_of(tool.get("inputSchema") or tool.get("parameters"))
    return object_of(schema.get("jsonSchema")) or schema
