"""A text alone, as the bulk of a stream is encoded: in every dialect the same as its delta."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.messages import AnyDelta, ErrorDelta, FinishDelta, ReasoningDelta, RefusalDelta, TextDelta, ToolCallDelta
from tailrace.wire.dialects import ANTHROPIC, CHAT, RESPONSES
from tailrace.wire.relay import AnswerEncoder
from wire.headers import header

NEW_ENCODERS: list[Callable[[], AnswerEncoder]] = [
    lambda: CHAT.new_encoder(header("chat", "chatcmpl-1", include_usage=True)),
    lambda: RESPONSES.new_encoder(header("chat", "resp_1")),
    lambda: ANTHROPIC.new_encoder(header("chat", "msg_1")),
]
TEXTS = st.sampled_from(["Hel", "lo", " wörld", '"', ""]).map(TextDelta)
OTHERS: st.SearchStrategy[AnyDelta] = st.sampled_from(
    [
        TextDelta("another", 1),
        ReasoningDelta("hm"),
        RefusalDelta("no"),
        ToolCallDelta(0, "call_1", "look", "{}"),
        FinishDelta("stop"),
        ErrorDelta("retryable", "cut"),
    ]
)


@pytest.mark.parametrize("new", NEW_ENCODERS, ids=["chat", "responses", "anthropic"])
@given(deltas=st.lists(TEXTS | TEXTS | OTHERS, max_size=12), again=st.integers(0, 12))
def test_a_text_is_encoded_as_its_delta(new: Callable[[], AnswerEncoder], deltas: list[AnyDelta], again: int) -> None:
    quick, usual = new(), new()
    for place, delta in enumerate(deltas):
        if place == again:
            quick.new_attempt("other", RESPONSES)
            usual.new_attempt("other", RESPONSES)
        if isinstance(delta, TextDelta) and not delta.choice:
            assert quick.encode_text(delta.text) == usual.encode([delta])
        else:
            assert quick.encode([delta]) == usual.encode([delta])
    assert quick.close(at=8.0) == usual.close(at=8.0)
