"""A chat's earlier messages as the AI SDK keeps them: what `useChat` is given when a page opens again. Pure.

An answer is made of the chunks that were streamed, as the AI SDK puts them together: so its ids and parts are the same.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tailrace.messages import File, Image, JsonObject, Message, Text
from tailrace.wire.sse import SseDecoder

_DONE: Final = b"[DONE]"


class UiMessageBuilder:
    """Puts one assistant message together from its chunks."""

    def __init__(self) -> None:
        self._decoder = SseDecoder()
        self._id = ""
        self._metadata: JsonObject = {}
        self._parts: list[JsonObject] = []
        self._texts: dict[str, tuple[JsonObject, list[str]]] = {}  # that grow, and their pieces, by the chunk's id

    def feed(self, data: bytes) -> None:
        """The next server-sent events of the stream, whole."""
        for event in self._decoder.feed(data):
            if event.data != _DONE:
                self._take(msgspec.json.decode(event.data))

    @property
    def message(self) -> JsonObject:
        for part, pieces in self._texts.values():
            part["text"] = "".join(pieces)
        return {"id": self._id, "role": "assistant", "metadata": self._metadata, "parts": self._parts}

    def _take(self, chunk: JsonObject) -> None:
        self._metadata |= chunk.get("messageMetadata") or {}
        kind: str = chunk["type"]
        match kind:
            case "start":
                self._id = chunk["messageId"]
            case "start-step":
                self._parts.append({"type": "step-start"})
            case "text-start" | "reasoning-start" | "text-delta" | "reasoning-delta" | "text-end" | "reasoning-end":
                self._take_text(kind, chunk)
            case "source-url" | "source-document" | "file":
                self._parts.append(chunk)
            case _ if kind.startswith("tool-"):
                self._take_tool(kind, chunk)
            case _ if kind.startswith("data-") and not chunk.get("transient"):
                self._take_data(chunk)
            case _:
                pass  # the end of a step or of the message; what was shown for a moment

    def _take_text(self, kind: str, chunk: JsonObject) -> None:
        name, _, what = kind.partition("-")
        if what == "start":
            begun = {"type": name, "text": "", "state": "streaming"}
            self._texts[chunk["id"]] = begun, []
            self._parts.append(begun)
        part, pieces = self._texts[chunk["id"]]
        pieces.append(chunk.get("delta", ""))
        if "providerMetadata" in chunk:
            part["providerMetadata"] = chunk["providerMetadata"]
        if what == "end":
            part["state"] = "done"

    def _take_tool(self, kind: str, chunk: JsonObject) -> None:
        call_id: str = chunk["toolCallId"]
        if kind == "tool-input-start":
            self._tool_part(chunk).update(state="input-streaming")
        elif kind == "tool-input-delta":
            pass  # the whole input follows
        elif kind == "tool-input-available":
            self._tool_part(chunk).update(state="input-available", input=chunk["input"])
        elif kind == "tool-input-error":
            part = self._tool_part(chunk)
            place = "input" if part["type"] == "dynamic-tool" else "rawInput"
            part.update({"state": "output-error", "errorText": chunk["errorText"], place: chunk["input"]})
        elif (known := self._known_tool(call_id)) is not None:
            self._answer_tool(kind, known, chunk)

    def _answer_tool(self, kind: str, part: JsonObject, chunk: JsonObject) -> None:
        match kind:
            case "tool-approval-request":
                part.update(state="approval-requested", approval={"id": chunk["approvalId"]})
            case "tool-output-denied":
                part["state"] = "output-denied"
            case "tool-output-available":
                part.update(state="output-available", output=chunk["output"])
            case "tool-output-error":
                part.update(state="output-error", errorText=chunk["errorText"])
            case _:
                raise TypeError(kind)
        if "approval" in part and kind != "tool-approval-request":  # the page said so itself, and knows it no more
            part["approval"].setdefault("approved", kind != "tool-output-denied")
        if "providerExecuted" in chunk:
            part["providerExecuted"] = chunk["providerExecuted"]

    def _tool_part(self, chunk: JsonObject) -> JsonObject:
        """The part of this call: a call that is made anew takes that of the one that broke off."""
        part = self._known_tool(chunk["toolCallId"], this_step=True)
        if part is None:
            kind = "dynamic-tool" if chunk.get("dynamic") else f"tool-{chunk['toolName']}"
            part = {"type": kind, "toolCallId": chunk["toolCallId"]}
            self._parts.append(part)
        for gone in ("errorText", "rawInput", "output"):
            part.pop(gone, None)
        if part["type"] == "dynamic-tool":
            part["toolName"] = chunk["toolName"]
        if "providerExecuted" in chunk:
            part["providerExecuted"] = chunk["providerExecuted"]
        return part

    def _known_tool(self, call_id: str, *, this_step: bool = False) -> JsonObject | None:
        for part in reversed(self._parts):
            if part.get("toolCallId") == call_id:
                return part
            if this_step and part["type"] == "step-start":
                break
        return None

    def _take_data(self, chunk: JsonObject) -> None:
        """The later part with an id replaces the data of the earlier one."""
        for part in self._parts:
            if part["type"] == chunk["type"] and part.get("id") == chunk.get("id"):
                part["data"] = chunk["data"]
                return
        self._parts.append(chunk)


def question_message(message: Message, message_id: str) -> JsonObject:
    """What the user said, with the files that came with it."""
    parts: list[JsonObject] = []
    for part in message.parts:
        match part:
            case Text(text):
                parts.append({"type": "text", "text": text})
            case Image() | File():
                parts.append(_file_part(part))
            case _:
                pass
    return {"id": message_id, "role": "user", "parts": parts}


def _file_part(part: Image | File) -> JsonObject:
    media_type = part.media_type or ("image/*" if isinstance(part, Image) else "application/octet-stream")
    shown: JsonObject = {"type": "file", "mediaType": media_type}
    shown["url"] = part.url or f"data:{media_type};base64,{part.data}"
    if isinstance(part, File) and part.name:
        shown["filename"] = part.name
    return shown
