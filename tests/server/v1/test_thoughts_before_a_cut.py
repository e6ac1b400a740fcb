"""What a model thought before its answer was cut is in the body of the answer that goes on from there (N172)."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.dialect_api import CALL, DIALECTS
from server.v1.replaying_provider import rebuilt, replaying
from server.v1.test_relay import CUT, RESPONSE, chat_stream, named_stream, part_events
from tailrace.messages import Dialect, JsonObject
from tailrace.wire.dialects import DIALECTS as WIRES


def _thought_and_said(up: Dialect, thought: str, said: str) -> list[JsonObject]:
    """The events of an answer without its end, or the choices of its chunks."""
    if up == "chat":
        return [{"delta": {"reasoning_content": thought}}, {"delta": {"content": said}}]
    if up == "anthropic":
        thinking: JsonObject = {"type": "thinking", "thinking": "", "signature": ""}
        deltas: list[JsonObject] = [
            {"type": "thinking_delta", "thinking": thought},
            {"type": "signature_delta", "signature": f"signed {thought}"},
        ]
        return [
            CUT[up][0],
            {"type": "content_block_start", "index": 0, "content_block": thinking},
            *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
            {"type": "content_block_stop", "index": 0},
            {**CUT[up][1], "index": 1},
            {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": said}},
        ]
    item: JsonObject = {"type": "reasoning", "id": f"rs_{len(thought)}", "summary": []}
    whole = {**item, "summary": [{"type": "summary_text", "text": thought}]}
    place = {"item_id": item["id"], "output_index": 0, "summary_index": 0}
    return [
        CUT[up][0],
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.reasoning_summary_text.delta", **place, "delta": thought},
        {"type": "response.reasoning_summary_text.done", **place, "text": thought},
        {"type": "response.output_item.done", "output_index": 0, "item": whole},
        {**CUT[up][1], "output_index": 1},
        *({**event, "output_index": 1} for event in part_events(0, said)[:2]),
    ]


def _answer_bytes(up: Dialect, events: list[JsonObject], *, cut: bool) -> bytes:
    if up == "chat":
        done = [] if cut else [{"delta": {}, "finish_reason": "stop"}]
        return chat_stream(*events, *done).removesuffix(b"data: [DONE]\n\n" if cut else b"")
    if cut:
        return named_stream(*events)
    if up == "responses":
        return named_stream(*events, {"type": "response.completed", "response": {**RESPONSE, "status": "completed"}})
    stop = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}}
    return named_stream(*events, {"type": "content_block_stop", "index": 1}, stop, {"type": "message_stop"})


@pytest.mark.parametrize("stand_in", [False, True], ids=["continued", "continued by another dialect"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("up", DIALECTS)
@pytest.mark.parametrize("down", DIALECTS)
async def test_N172_the_thoughts_before_a_cut_are_in_every_body(
    tmp_path: Path, down: Dialect, up: Dialect, stream: bool, stand_in: bool
) -> None:
    last: Dialect = ("anthropic" if up == "chat" else "chat") if stand_in else up
    cut = _answer_bytes(up, _thought_and_said(up, "First. ", "One, two, "), cut=True)
    rest = _answer_bytes(last, _thought_and_said(last, "Then.", "three."), cut=False)
    fallbacks = [{"provider": f"up-{last}", "name": "any"}] if stand_in else []
    model = {"provider": f"up-{up}", "name": "any", "fallbacks": fallbacks}
    call = {**CALL, "max_attempts": 1} if stand_in else CALL
    async with replaying(tmp_path, cut, rest, model=model, call=call) as server:
        if stream:
            body = rebuilt(down, await server.streamed(down, up))
        else:
            _, body = await server.whole(down, up)
    assert body is not None
    completion = WIRES[down].completion_from_body(body)
    assert (completion.reasoning, completion.text) == ("First. Then.", "One, two, three.")
    if down == last == up == "anthropic":
        assert body["content"][0] == {"type": "thinking", "thinking": "First. ", "signature": "signed First. "}
