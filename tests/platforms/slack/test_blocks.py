"""What Slack is sent: the same text whole and in pieces."""

from __future__ import annotations

from typing import Any

from tailrace.delivery.port import Send
from tailrace.platforms.slack.blocks import message_body, stream_body

TABLE = "#### Levels\n\n| river | level |\n|---|---|\n| Aare | 1.2 |"


def markdown_of(body: dict[str, Any]) -> str:
    [piece] = body["chunks"] if "chunks" in body else body["blocks"]
    return str(piece["text"])


def test_a_table_and_a_deep_heading_are_slacks_own_streamed_or_not() -> None:
    assert markdown_of(message_body(Send("k", TABLE))) == TABLE
    assert markdown_of(stream_body(TABLE, ())) == TABLE
