from __future__ import annotations

import json
import time
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from properties import examples
from tailrace.messages import ErrorDelta, JsonObject
from tailrace.wire.responses.completion import completion_from_body
from tailrace.wire.sse import encode_event
from wire.recordings import split_at
from wire.responses.responses_streams import USAGE, call_delta, call_item, completed, created, event, run, text_delta

RAW = b"".join(
    [
        *("\ufeff: hello\r\n".encode(), created(), text_delta("Hé 🐢"), text_delta("\u2028llo", logprobs=[{"t": 1}])),
        event("response.output_item.added", output_index=1, item=call_item(1, status="in_progress")),
        *(call_delta('{"a"', 1), call_delta(":1}", 1), b"data: [DONE]\r\n\r\n", b"event: ping\ndata: {}\n\n"),
        event("response.reasoning_text.delta", item_id="rs", output_index=2, content_index=0, delta="hm"),
        *(completed(usage=USAGE), event("ping", cost="0")),
    ]
)
WHOLE = run(RAW)


@given(cuts=st.lists(st.integers(0, len(RAW)), max_size=30))
def test_A01_A02_A04_any_split_gives_the_same(cuts: list[int]) -> None:
    deltas, decoder = run(*split_at(RAW, cuts))
    assert deltas == WHOLE[0]
    assert decoder.rebuilt_body() == WHOLE[1].rebuilt_body()


def test_A01_byte_by_byte() -> None:
    deltas, decoder = run(*(RAW[i : i + 1] for i in range(len(RAW))))
    assert (deltas, decoder.rebuilt_body()) == (WHOLE[0], WHOLE[1].rebuilt_body())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KINDS = [
    *("response.created", "response.output_text.delta", "response.output_text.done", "response.output_item.added"),
    *("response.output_item.done", "response.content_part.added", "response.content_part.done", "error", "other"),
    *("response.function_call_arguments.delta", "response.shell_call_command.delta", "response.completed"),
    *("response.output_text.annotation.added", "response.reasoning_summary_text.delta"),
]
KEYS = ["item", "part", "response", "delta", "output_index", "content_index", "item_id", "text", "error", "annotation"]
odd_items = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "function_call", "reasoning"]) | json_values},
    optional=dict.fromkeys(("id", "content", "summary", "arguments", "name", "output", "usage"), json_values),
)
odd_events = st.builds(
    lambda kind, fields: {"type": kind, **fields},
    st.sampled_from(KINDS),
    st.dictionaries(st.sampled_from(KEYS), json_values | odd_items, max_size=5),
)


@given(st.lists(odd_events, max_size=8))
def test_fields_of_any_kind_never_crash_it(events: list[JsonObject]) -> None:
    deltas, decoder = run(*(encode_event(json.dumps(e, allow_nan=False, default=str)) for e in map(finite, events)))
    assert sum(isinstance(delta, ErrorDelta) for delta in deltas) == (0 if decoder.complete else 1)
    completion_from_body(decoder.rebuilt_body())


def finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if abs(value) < 1e300 else 0.5
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    return [finite(inner) for inner in value] if isinstance(value, list) else value


@settings(max_examples=examples(200))
@given(json_values)
def test_reading_never_crashes(value: Any) -> None:
    body = {"output": [value, {"type": "message", "content": value}, {"type": "reasoning", "summary": value}]}
    for whole in ({**body, "usage": value, "incomplete_details": value}, {"output": value, "status": value}):
        assert completion_from_body(whole).dialect == "responses"


def test_cost_per_delta_does_not_grow() -> None:
    def seconds(count: int) -> float:
        raw = [text_delta(" token") for _ in range(count)]
        start = time.process_time()
        run(*raw)
        return time.process_time() - start

    small = min(seconds(1_000) for _ in range(5))
    large = min(seconds(20_000) for _ in range(3))
    assert large < 80 * small  # twenty times the deltas; a decoder that re-read its text would need four hundred
