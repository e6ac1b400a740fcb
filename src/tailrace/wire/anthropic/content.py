"""A conversation as the Messages API takes it. Owns the rules whose violation the API refuses: roles alternate, results
come first, no block is blank, thinking is signed, ids are plain."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from typing import Literal

from tailrace.messages import File, Image, JsonObject, Message, Native, Reasoning, Refusal, Text, ToolCall, ToolResult

_NOT_IN_AN_ID = re.compile(r"[^a-zA-Z0-9_-]")
_DATA_URL = re.compile(r"data:(?P<media_type>[^;,]*)(?:;[^,]*)?;base64,(?P<data>.*)", re.DOTALL)
_BlockRole = Literal["user", "assistant"]


def system_of(system: str, messages: Iterable[Message]) -> str:
    """The API has one system prompt beside the conversation: all system messages join it."""
    texts = [system, *(message.text for message in messages if message.role == "system")]
    return "\n\n".join(text for text in texts if text)


def conversation(messages: Iterable[Message], prefill: str) -> list[JsonObject]:
    """The messages in turns of alternating roles, with `prefill` as the last where the answer continues it."""
    turns: list[tuple[_BlockRole, list[JsonObject]]] = []
    spoken = (message for message in messages if message.role != "system")
    for message in (*spoken, Message("assistant", (Text(prefill),))):
        role: _BlockRole = "assistant" if message.role == "assistant" else "user"
        blocks = blocks_of(message)
        if not blocks:
            continue
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(blocks)
        else:
            turns.append((role, blocks))
    if turns and turns[-1][0] == "assistant":
        *_, last = turns[-1][1]
        if last.get("type") == "text":  # an assistant turn at the end must not end in white space
            turns[-1][1][-1] = {**last, "text": str(last.get("text", "")).rstrip()}
    # Results must open the turn that follows their calls; the order is otherwise kept.
    for _, blocks in turns:
        blocks.sort(key=lambda block: block.get("type") != "tool_result")
    return [{"role": role, "content": blocks} for role, blocks in turns]


def blocks_of(message: Message) -> list[JsonObject]:
    """The message's content blocks. An assistant's images and the native items of other dialects have no form here."""
    blocks: list[JsonObject] = []
    for part in message.parts:
        if isinstance(part, Native):
            if part.dialect == "anthropic":
                _add_native(blocks, part.item)
        elif not (isinstance(part, Image | File) and message.role == "assistant"):
            blocks.extend(_blocks(part))
    return blocks


def call_id(call: str) -> str:
    """Ids of other providers may hold characters that this one refuses; call and result change alike."""
    return _NOT_IN_AN_ID.sub("_", call) or "_"


def _blocks(part: Text | Image | File | Reasoning | Refusal | ToolCall | ToolResult) -> list[JsonObject]:
    match part:
        case Text(text) | Refusal(text):
            return [{"type": "text", "text": text}] if text.strip() else []  # blank blocks are refused
        case Image():
            return [_image(part)] if part.data or part.url else []
        case File():
            return [_document(part)] if part.data or part.url else []
        case Reasoning():
            return _thinking(part)
        case ToolCall(id_, name):
            # The API takes objects alone; arguments that are none go in the wrapping its documentation gives (B34).
            return [{"type": "tool_use", "id": call_id(id_), "name": name, "input": _input(part)}]
        case ToolResult():
            return [_result(part)]


def _input(call: ToolCall) -> JsonObject:
    parsed = call.parsed()
    return parsed if parsed is not None else {"INVALID_JSON": call.arguments}


def _thinking(part: Reasoning) -> list[JsonObject]:
    """Only reasoning that this dialect signed or encrypted itself: the API refuses any other (C45)."""
    native = part.native
    if part.dialect != "anthropic" or native is None:
        return []
    return [native] if native.get("signature") or native.get("type") == "redacted_thinking" else []


def _result(part: ToolResult) -> JsonObject:
    result: JsonObject = {"type": "tool_result", "tool_use_id": call_id(part.call_id)}
    if isinstance(part.content, str):
        result["content"] = part.content
    else:
        kept = part.content if part.ok else [p for p in part.content if isinstance(p, Text)]  # errors are text alone
        result["content"] = [block for p in kept for block in _blocks(p)]
    if not part.ok:
        result["is_error"] = True
    return result


def _document(file: File) -> JsonObject:
    source: JsonObject
    if file.url:
        source = {"type": "url", "url": file.url}
    elif file.media_type.startswith("text/"):  # in base64 the API takes PDF alone
        text = base64.b64decode(file.data).decode("utf-8", "replace")
        source = {"type": "text", "media_type": "text/plain", "data": text}
    else:
        source = {"type": "base64", "media_type": file.media_type or "application/pdf", "data": file.data}
    return {"type": "document", "source": source, **({"title": file.name} if file.name else {})}


def _image(image: Image) -> JsonObject:
    if image.data:
        source = {"type": "base64", "media_type": image.media_type or "image/png", "data": image.data}
    elif inline := _DATA_URL.fullmatch(image.url):
        source = {"type": "base64", **inline.groupdict()}
    else:
        source = {"type": "url", "url": image.url}
    return {"type": "image", "source": source}


def _add_native(blocks: list[JsonObject], item: JsonObject) -> None:
    """A native text or call replaces the neutral part before it where both have the same content."""
    before = blocks[-1] if blocks else {}
    match item.get("type"):
        case "text":
            if before.get("type") == "text" and before.get("text") == item.get("text"):
                blocks[-1] = item
        case "tool_use":
            if before.get("id") == item.get("id") and before.get("input") == item.get("input"):
                blocks[-1] = item
        case _ if isinstance(item.get("input", {}), dict):
            blocks.append(item)
        case _:  # a server tool's use that was cut: its input is incomplete
            pass
