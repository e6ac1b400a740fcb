"""Seals of ours: what they name comes back, and anything else is plain text (K131)."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.messages import Dialect, Message, ModelRequest, Reasoning, ReasoningDelta, Text, TextDelta, ToolCall
from tailrace.wire.anthropic.encode import StreamEncoder as AnthropicEncoder
from tailrace.wire.chat.decode import ChatDecoder
from tailrace.wire.chat.provider_request import encode_request
from tailrace.wire.dialects import DIALECTS
from tailrace.wire.reasoning_seal import TEXT_FIELDS, field_delta, is_sealed, seal, unsealed
from tailrace.wire.responses.encode import StreamEncoder as ResponsesEncoder
from wire.headers import header


@pytest.mark.parametrize("field", TEXT_FIELDS)
def test_K131_what_is_sealed_comes_back_in_its_field(field: str) -> None:
    assert unsealed("Hm.", seal("deepseek", field)) == Reasoning("Hm.", "chat", {field: "Hm."}, "deepseek/")


@pytest.mark.parametrize(
    "sealed",
    [
        "tr1.",
        "tr1.!!!",
        "tr1.e30",
        "tr1." + "A" * 5000,
        "tr1." + base64.urlsafe_b64encode(b"[" * 900).decode(),
        seal("deepseek", ""),
        seal("deepseek", "role"),
        seal("", "reasoning_content"),
    ],
)
def test_K131_a_seal_that_names_nothing_known_leaves_plain_text(sealed: str) -> None:
    assert unsealed("Hm.", sealed) == Reasoning("Hm.")


@given(st.text())
def test_K131_no_text_is_too_strange_for_a_seal(text: str) -> None:
    assert unsealed("Hm.", "tr1." + text).text == "Hm."
    assert not is_sealed(None)


def test_K131_thoughts_in_several_parts_are_one_field_beside_the_calls() -> None:
    first, second = (unsealed(text, seal("p", "reasoning")) for text in ("One. ", "Two."))
    called = Message("assistant", (first, Text("Look."), second, ToolCall("c", "look")))
    (sent,) = encode_request(ModelRequest("m", (called,)), stream=False)["messages"]
    assert sent["reasoning"] == "One. Two."
    answered = Message("assistant", (first, Text("Yes.")))
    (plain,) = encode_request(ModelRequest("m", (answered,)), stream=False)["messages"]
    assert "reasoning" not in plain


def test_K131_a_stream_names_its_field_once_unless_it_is_the_usual_one() -> None:
    def deltas(field: str) -> list[object]:
        chunk = b'data: {"choices":[{"index":0,"delta":{"%b":"Hm"}}]}\n\n' % field.encode()
        return [*ChatDecoder().feed(chunk * 3)]

    thoughts = [ReasoningDelta("Hm")] * 3
    assert deltas("reasoning_content") == thoughts
    assert deltas("reasoning") == [field_delta("reasoning"), *thoughts]


@pytest.mark.parametrize("first", ["chat", "anthropic"])
@pytest.mark.parametrize("encoder", [AnthropicEncoder, ResponsesEncoder])
def test_K131_a_stand_in_s_thoughts_are_sealed_in_its_own_field(
    encoder: type[AnthropicEncoder | ResponsesEncoder], first: Dialect
) -> None:
    """Whatever field the provider named that broke off, and whatever dialect it speaks."""
    answer = encoder(header(first, "resp_1"))
    answer.new_attempt("broken", DIALECTS[first])
    answer.encode([field_delta("reasoning")] if first == "chat" else [])
    answer.encode([TextDelta("So ")])
    answer.new_attempt("deepseek", DIALECTS["chat"])
    sent = answer.encode([ReasoningDelta("Hm."), TextDelta("it is.")])
    assert seal("deepseek", "reasoning_content").encode() in sent
