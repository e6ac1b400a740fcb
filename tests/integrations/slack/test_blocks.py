"""What Slack is sent: the same text whole and in pieces, which calls nobody."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.delivery.port import Send
from tailrace.integrations.slack.blocks import message_body, stream_body, without_calls

JOINER = "\u2060"
TABLE = "#### Levels\n\n| river | level |\n|---|---|\n| Aare | 1.2 |"


def markdown_of(body: dict[str, Any]) -> str:
    [piece] = body["chunks"] if "chunks" in body else body["blocks"]
    return str(piece["text"])


def test_a_table_and_a_deep_heading_are_slacks_own_streamed_or_not() -> None:
    assert markdown_of(message_body(Send("k", TABLE))) == TABLE
    assert markdown_of(stream_body(TABLE, ())) == TABLE


@pytest.mark.parametrize("call", ["<!channel>", "<!here|here>", "<!everyone>", "<!subteam^S1|@devs>"])
@given(cuts=st.sets(st.integers(1, 30)))
def test_an_answer_calls_nobody_however_a_stream_cuts_it(call: str, cuts: set[int]) -> None:
    text = f"All: {call}, look."
    ends = [*sorted(cut for cut in cuts if cut < len(text)), len(text)]
    pieces = [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    shown = "".join(markdown_of(stream_body(piece, ())) for piece in pieces)
    assert "<!" not in shown
    assert shown.replace(JOINER, "") == text
    assert "<!" not in markdown_of(message_body(Send("k", text)))


@pytest.mark.parametrize("text", ["<!DOCTYPE html>", "x <- y", "Ask <@U8> in <#C1>", "<https://e.org>", "What!"])
def test_what_calls_nobody_stays_as_it_is(text: str) -> None:
    assert without_calls(text) == text


def test_the_text_of_a_notification_is_escaped() -> None:
    body = message_body(Send("k", "1 < 2 & <!channel>"))
    assert body["text"] == "1 &lt; 2 &amp; &lt;!channel&gt;"
    assert len(message_body(Send("k", "&" * 12_000))["text"]) == 40_000
