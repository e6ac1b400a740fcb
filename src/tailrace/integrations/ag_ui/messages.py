"""AG-UI's messages as ours, and ours as AG-UI's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from tailrace.integrations.ag_ui import run_agent_input as ag_ui
from tailrace.messages import File, Image, JsonObject, Message, Part, Text, ToolCall, ToolResult
from tailrace.server.http.api_errors import ApiError
from tailrace.wire.openai_request import DATA_URL

# ── to our messages ──────────────────────────────────────────────────────────────────────────────────────────


def to_messages(messages: Iterable[tuple[int, ag_ui.AgUiMessage]]) -> tuple[Message, ...]:
    """These messages with their places in the list. Results that stand together become one message. Raises `ApiError`
    400 for a part that no model takes."""
    out: list[Message] = []
    for index, message in messages:
        where = f"messages[{index}]"
        match message:
            case ag_ui.UserMessage(content=content):
                out.append(Message("user", _parts(content, where)))
            case ag_ui.AssistantMessage(content=content, tool_calls=calls):
                called = tuple(ToolCall(call.id, call.function.name, call.function.arguments) for call in calls or ())
                out.append(Message("assistant", (*_parts(content or (), where), *called)))
            case ag_ui.ToolMessage(tool_call_id=call_id, content=content, error=error):
                result = ToolResult(call_id, _result(content, error, where), ok=error is None)
                before = out.pop().parts if out and out[-1].role == "tool" else ()
                out.append(Message("tool", (*before, result)))
            case ag_ui.SystemMessage() | ag_ui.DeveloperMessage() | ag_ui.ReasoningMessage() | ag_ui.ActivityMessage():
                pass
            case _:
                assert_never(message)
    return tuple(out)


def _result(content: ag_ui.Contents, error: str | None, where: str) -> str | tuple[Text | Image | File, ...]:
    if error is not None:
        said = content if isinstance(content, str) else ""
        return "\n".join(filter(None, (error, said)))
    return content if isinstance(content, str) else _parts(content, where)


def _parts(content: ag_ui.Contents, where: str) -> tuple[Text | Image | File, ...]:
    if isinstance(content, str):
        return (Text(content),) if content else ()
    return tuple(_part(part, f"{where}.content[{index}]") for index, part in enumerate(content))


def _part(part: ag_ui.Content, where: str) -> Text | Image | File:
    match part:
        case ag_ui.TextContent(text):
            return Text(text)
        case ag_ui.ImageContent(source):
            data, url, media_type = _source(source)
            return Image(url=url, data=data, media_type=media_type)
        case ag_ui.DocumentContent(source, metadata):
            name = metadata.get("filename") if isinstance(metadata, dict) else ""
            data, url, media_type = _source(source)
            return File(data, media_type, name if isinstance(name, str) else "", url)
        case ag_ui.BinaryContent(mime_type, data, url, filename):
            if not data and not url:
                raise ApiError(400, f"{where}: expected data or url", param=where)
            if mime_type.startswith("image/"):
                return Image(url=url, data=data, media_type=mime_type)
            return File(data, mime_type, filename, url)
        case _:
            assert_never(part)


def _source(source: ag_ui.Source) -> tuple[str, str, str]:
    """(base64, address, type): one of the first two."""
    match source:
        case ag_ui.DataSource(value, media_type):
            return value, "", media_type
        case ag_ui.UrlSource(value, media_type):
            if inline := DATA_URL.fullmatch(value):
                return inline["data"], "", media_type or inline["media_type"]
            return "", value, media_type
        case _:
            assert_never(source)


# ── to AG-UI's ───────────────────────────────────────────────────────────────────────────────────────────────


def shown_messages(messages: Sequence[Message], ids: Sequence[str]) -> list[JsonObject]:
    """Our messages as a front end is shown them; each result of a tool is a message of its own. `ids` are for the first
    of them; the id before is used again with a number for more."""
    out: list[JsonObject] = []
    for message in messages:
        match message.role:
            case "user":
                out.append({"role": "user", "content": _shown_content(message.parts)})
            case "assistant":
                calls = [
                    {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                    for call in message.tool_calls
                ]
                out.append({"role": "assistant", "content": message.text, **({"toolCalls": calls} if calls else {})})
            case "tool":
                results = [part for part in message.parts if isinstance(part, ToolResult)]
                out += [{"role": "tool", "toolCallId": result.call_id, "content": result.text} for result in results]
            case "system":
                pass
            case _:
                assert_never(message.role)
    named = [*ids[: len(out)]]
    named += [f"{ids[-1]}.{number}" for number in range(len(named), len(out))]
    return [{"id": each, **shown} for each, shown in zip(named, out, strict=True)]


def _shown_content(parts: Sequence[Part]) -> str | list[JsonObject]:
    if all(isinstance(part, Text) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, Text))
    out: list[JsonObject] = []
    for part in parts:
        match part:
            case Text(text):
                out.append({"type": "text", "text": text})
            case Image(url, data, media_type):
                out.append({"type": "image", "source": _shown_source(data, url, media_type)})
            case File(data, media_type, name, url):
                named = {"metadata": {"filename": name}} if name else {}
                out.append({"type": "document", "source": _shown_source(data, url, media_type), **named})
            case _:
                pass
    return out


def _shown_source(data: str, url: str, media_type: str) -> JsonObject:
    if data:
        return {"type": "data", "value": data, "mimeType": media_type}
    return {"type": "url", "value": url, **({"mimeType": media_type} if media_type else {})}
