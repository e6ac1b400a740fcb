"""AG-UI's `RunAgentInput`, and what it says beside its messages. Values only."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from tailrace.agent.turn_spec import Busy
from tailrace.events import Decision
from tailrace.messages import JsonObject, ToolSpec
from tailrace.server.http.api_errors import ApiError
from tailrace.values.validation_words import validation_mistake

S = TypeVar("S", bound=msgspec.Struct)
Id = Annotated[str, Meta(min_length=1, max_length=256)]
_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

# ── what is asked ────────────────────────────────────────────────────────────────────────────────────────────


class DataSource(msgspec.Struct, frozen=True, tag_field="type", tag="data", rename="camel"):
    """`value` is base64."""

    value: str
    mime_type: str


class UrlSource(msgspec.Struct, frozen=True, tag_field="type", tag="url", rename="camel"):
    value: str
    mime_type: str = ""


Source: TypeAlias = DataSource | UrlSource  # `file`, a handle that one provider has issued, is refused


class TextContent(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    text: str


class ImageContent(msgspec.Struct, frozen=True, tag_field="type", tag="image"):
    source: Source


class DocumentContent(msgspec.Struct, frozen=True, tag_field="type", tag="document"):
    source: Source
    metadata: Any = None  # `filename`


class BinaryContent(msgspec.Struct, frozen=True, tag_field="type", tag="binary", rename="camel"):
    """What clients before 1.0 send in place of an image or a document."""

    mime_type: str
    data: str = ""
    url: str = ""
    filename: str = ""


Content: TypeAlias = TextContent | ImageContent | DocumentContent | BinaryContent
Contents: TypeAlias = str | tuple[Content, ...]


class FunctionCall(msgspec.Struct, frozen=True):
    name: str
    arguments: str = "{}"


class CallOfTool(msgspec.Struct, frozen=True):
    id: Id
    function: FunctionCall


class _Message(msgspec.Struct, frozen=True, tag_field="role", rename="camel", kw_only=True):
    id: Id


class UserMessage(_Message, frozen=True, tag="user", kw_only=True):
    content: Contents


class AssistantMessage(_Message, frozen=True, tag="assistant", kw_only=True):
    content: Contents | None = None
    tool_calls: tuple[CallOfTool, ...] | None = None


class ToolMessage(_Message, frozen=True, tag="tool", kw_only=True):
    content: Contents
    tool_call_id: Id
    error: str | None = None


class SystemMessage(_Message, frozen=True, tag="system", kw_only=True):
    content: str


class DeveloperMessage(_Message, frozen=True, tag="developer", kw_only=True):
    content: str


class ReasoningMessage(_Message, frozen=True, tag="reasoning", kw_only=True):
    """The session has its own: not read."""


class ActivityMessage(_Message, frozen=True, tag="activity", kw_only=True):
    """Of the front end's own: not read."""


AgUiMessage: TypeAlias = (
    UserMessage | AssistantMessage | ToolMessage | SystemMessage | DeveloperMessage | ReasoningMessage | ActivityMessage
)


class FrontEndTool(msgspec.Struct, frozen=True):
    """A tool that the front end runs."""

    name: str
    description: str = ""
    parameters: JsonObject | None = None


class Context(msgspec.Struct, frozen=True):
    description: str
    value: str


class ResumeEntry(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to an interrupt. `payload`: `{"approved": true}`, or `{"decision": "once"}` with one of `once`,
    `session`, `always` and `deny`."""

    interrupt_id: Id
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class ForwardedProps(msgspec.Struct, frozen=True):
    """`model`: `<provider>/<model>` or an alias, in place of the configured one. `reasoning`: what the model thinks is
    shown. `busy`: what the message does to a run under way. Any other property is the application's own."""

    model: Annotated[str, Meta(max_length=256)] = ""
    reasoning: bool | None = None
    busy: Busy = "interrupt"


class RunAgentInput(msgspec.Struct, frozen=True, rename="camel"):
    """`threadId` is the session. The same `runId` again goes on with the same run. Without new messages the thread is
    opened: all that was said in it, and what runs in it now."""

    thread_id: Id
    run_id: Id
    messages: tuple[AgUiMessage, ...]
    tools: tuple[FrontEndTool, ...] | None = None
    context: tuple[Context, ...] | None = None
    state: Any = None
    forwarded_props: Any = None
    resume: tuple[ResumeEntry, ...] | None = None
    parent_run_id: str | None = None
    protocol_version: str | None = None

    @property
    def props(self) -> ForwardedProps:
        """Raises `ApiError` 400."""
        given = self.forwarded_props
        return _converted(given, ForwardedProps, "forwardedProps") if isinstance(given, dict) else ForwardedProps()


def input_of(body: JsonObject) -> RunAgentInput:
    """Raises `ApiError` 400 that names the field."""
    return _converted(body, RunAgentInput, "")


def _converted(value: object, kind: type[S], where: str) -> S:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as exc:
        place, mistake = validation_mistake(exc, kind)
        param = f"{where}{place}".lstrip(".")
        raise ApiError(400, f"{param or 'the body'}: {mistake}", param=param or None) from exc


def decision_of(entry: ResumeEntry, where: str) -> Decision:
    """Raises `ApiError` 400 for an answer that is neither yes nor no: nothing is allowed by default."""
    if entry.status == "cancelled":
        return "deny"
    match entry.payload:
        case {"editedArgs": _} | {"edited_args": _}:
            problem = "a call runs as it was asked for; deny it and say in a message what to do instead"
            raise ApiError(400, f"{where}.payload.editedArgs: {problem}", param=f"{where}.payload")
        case {"decision": "once" | "session" | "always" | "deny" as decision}:
            chosen: Decision = decision
            return chosen
        case {"approved": bool(approved)} | bool(approved):
            return "once" if approved else "deny"
        case _:
            forms = '{"approved": true}, {"approved": false} or {"decision": "once" | "session" | "always" | "deny"}'
            raise ApiError(400, f"{where}.payload: expected {forms}", param=f"{where}.payload")


def denial_reason(entry: ResumeEntry) -> str:
    """What the user says about a denial."""
    reason = entry.payload.get("reason") if isinstance(entry.payload, dict) else None
    return reason if isinstance(reason, str) else ""


def tools_of(asked: RunAgentInput) -> tuple[ToolSpec, ...]:
    """The front end's tools. Raises `ApiError` 400."""
    specs: dict[str, ToolSpec] = {}
    for index, tool in enumerate(asked.tools or ()):
        where = f"tools[{index}].name"
        if not _TOOL_NAME.fullmatch(tool.name):
            raise ApiError(400, f"{where}: 1 to 64 letters, digits, _ and -", param=where)
        if tool.name in specs:
            raise ApiError(400, f"{where}: there are two tools named {tool.name}", param=where)
        spec = ToolSpec(tool.name, tool.description)
        specs[tool.name] = msgspec.structs.replace(spec, parameters=tool.parameters) if tool.parameters else spec
    return tuple(specs.values())


def system_of(asked: RunAgentInput) -> str:
    """What is added to the model's instructions: those of the application, its context and its state."""
    told = [message.content for message in asked.messages if isinstance(message, SystemMessage | DeveloperMessage)]
    told += [f"{context.description}:\n{context.value}" for context in asked.context or ()]
    if asked.state not in (None, {}, [], ""):
        told.append(f"The state of the application:\n{msgspec.json.encode(asked.state).decode()}")
    return "\n\n".join(filter(None, told))
