"""A message of the AI SDK put together from its chunks: texts are joined once, whatever the number of pieces."""

from __future__ import annotations

import msgspec

from tailrace.integrations.ai_sdk.ui_messages import UiMessageBuilder
from tailrace.messages import JsonObject


def fed(*chunks: JsonObject) -> UiMessageBuilder:
    builder = UiMessageBuilder()
    for chunk in chunks:
        builder.feed(b"data: %b\n\n" % msgspec.json.encode(chunk))
    return builder


def test_each_text_grows_by_its_id() -> None:
    builder = fed(
        {"type": "start", "messageId": "m"},
        {"type": "text-start", "id": "t"},
        {"type": "text-delta", "id": "t", "delta": "one "},
        {"type": "text-delta", "id": "t", "delta": "two"},
        {"type": "text-end", "id": "t"},
        {"type": "text-start", "id": "u"},
        {"type": "text-delta", "id": "u", "delta": "three"},
        {"type": "tool-input-start", "toolCallId": "c", "toolName": "look"},
        {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": '{"a":'},
    )
    said = builder.message
    assert said["parts"] == [
        {"type": "text", "text": "one two", "state": "done"},
        {"type": "text", "text": "three", "state": "streaming"},
        {"type": "tool-look", "toolCallId": "c", "state": "input-streaming"},
    ]
    assert builder.message == said
