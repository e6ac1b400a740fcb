"""Mutated streams of every dialect: never a crash, never a hang, nothing but typed values.

`FUZZ_MUTATIONS` sets how many (10,000 by default, over all dialects); a mutation is found again by its number. Seeds
are small streams written here and, where `TAILRACE_WIRE_DIR` is set, the recorded ones.
"""

from __future__ import annotations

import base64
import json
import os
import random
import time
from collections.abc import Callable
from functools import cache
from typing import Any, get_args

import msgspec
import pytest

from tailrace.config.quirks import WireQuirks
from tailrace.messages import AnyDelta, Completion, Dialect, ErrorDelta, Message, ModelRequest, user
from tailrace.wire.dialect import WireDialect
from tailrace.wire.dialects import DIALECTS
from wire.recordings import load, random_pieces

MUTATIONS = int(os.environ.get("FUZZ_MUTATIONS", "10000"))
SHARDS = 4  # per dialect, for tests that run in parallel
MAX_SEED_BYTES = 24_000  # longer recordings repeat themselves: more mutations are worth more than more tokens
MAX_SECONDS = 5.0  # of a mutation that takes milliseconds; a quadratic or endless decoder takes far longer
ALL_DELTAS = get_args(AnyDelta)


def sse(*events: Any, named: bool = False) -> bytes:
    lines = []
    for event in events:
        name = f"event: {event['type']}\n" if named else ""
        lines.append(f"{name}data: {event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)}\n\n")
    return "".join(lines).encode()


def _chat(*choices: Any, **fields: Any) -> Any:
    return {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": list(choices),
        **fields,
    }


def _choice(finish: str | None = None, index: int = 0, **delta: Any) -> Any:
    return {"index": index, "delta": delta, "finish_reason": finish, "logprobs": None}


def _call(index: int, arguments: str, **fields: Any) -> Any:
    return {"index": index, "function": {"arguments": arguments, **fields}}


_USAGE = {"prompt_tokens": 5, "completion_tokens": 6, "prompt_tokens_details": {"cached_tokens": 1}}
_ITEM = {"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress", "content": []}
_TEXT = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
_CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "f",
    "arguments": "",
    "status": "in_progress",
}
_ARGUMENTS = {"item_id": "fc_1", "output_index": 1}
_COUNTS = {"input_tokens": 3, "output_tokens": 4}
_TOOL_USE = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
_PART = {"type": "output_text", "text": "", "annotations": []}
_RESPONSE = {"id": "resp_1", "object": "response", "model": "m", "status": "in_progress", "output": []}


def _numbered(*events: Any) -> list[Any]:
    return [{**event, "sequence_number": n} for n, event in enumerate(events)]


SYNTHETIC: dict[Dialect, list[bytes]] = {
    "chat": [
        sse(
            _chat(_choice(role="assistant", content="")),
            *(_chat(_choice(content=word), obfuscation="x1") for word in ("Za", "żółć", " \u2028🐢", "\n", '"q"')),
            _chat(_choice("stop")),
            _chat(usage=_USAGE),
            "[DONE]",
        ),
        sse(
            _chat(_choice(reasoning="hm", reasoning_details=[{"type": "reasoning.text", "text": "hm", "index": 0}])),
            _chat(_choice(tool_calls=[{**_call(0, "", name="f"), "id": "a", "type": "function"}])),
            *(_chat(_choice(tool_calls=[_call(0, text)])) for text in ('{"x"', ":[1", ",2]", "}")),
            _chat(_choice(tool_calls=[{**_call(n, "{}", name="g"), "id": f"b{n}"} for n in (1, 2)])),
            _chat(_choice(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}], index=1)),
            _chat(_choice("tool_calls"), _choice("stop", 1), usage=_USAGE, citations=["u"]),
            "[DONE]",
        ),
        sse(_chat(_choice(content="Hel")), {"error": {"message": "no", "code": 429}}),
    ],
    "responses": [
        sse(
            *_numbered(
                {"type": "response.created", "response": _RESPONSE},
                {"type": "response.output_item.added", "output_index": 0, "item": _ITEM},
                {"type": "response.content_part.added", **_TEXT, "part": _PART},
                *({"type": "response.output_text.delta", **_TEXT, "delta": word} for word in ("Za", "żółć", " 🐢")),
                {"type": "response.output_text.done", **_TEXT, "text": "Zażółć 🐢"},
                {"type": "response.output_item.done", "output_index": 0, "item": {**_ITEM, "status": "completed"}},
                {"type": "response.output_item.added", "output_index": 1, "item": _CALL},
                {"type": "response.function_call_arguments.delta", **_ARGUMENTS, "delta": "{}"},
                {"type": "response.function_call_arguments.done", **_ARGUMENTS, "arguments": "{}"},
                {"type": "response.completed", "response": {**_RESPONSE, "status": "completed", "usage": _COUNTS}},
            ),
            named=True,
        ),
    ],
    "anthropic": [
        sse(
            {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": _COUNTS}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig"}},
            {"type": "content_block_stop", "index": 0},
            {"type": "ping"},
            {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
            *(
                {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": word}}
                for word in ("Za", "żółć", " 🐢")
            ),
            {"type": "content_block_stop", "index": 1},
            {"type": "content_block_start", "index": 2, "content_block": _TOOL_USE},
            {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
            {"type": "content_block_stop", "index": 2},
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
            {"type": "message_stop"},
            named=True,
        ),
    ],
}  # fmt: skip


@cache
def seeds(dialect: Dialect) -> list[bytes]:
    recorded = [r.raw for r in load(dialect) if len(r.raw) <= MAX_SEED_BYTES]
    return SYNTHETIC[dialect] * (3 if recorded else 1) + recorded


# ── mutations ────────────────────────────────────────────────────────────────────────────────────────────────

JUNK = [
    b"", b"\0", b"\n", b"\r", b"\n\n", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b'"', b"\\", b"{", b"}", b"[", b"]",
    b"\\ud800", b"data: ", b"data: [DONE]\n\n", b"event: error\n", b": x\n\n", b"id: 1\n", b"null", b"1e999", b"-",
    b"[" * 3000,
]  # fmt: skip
VALUES: list[Any] = [
    None, True, 0, -1, 1, 2**70, 1.5, "", "x", "\ud800", "stop", "{}", '{"a"', [], [None], [[]], [{}], {}, {"": None},
    {"type": "text", "text": "y"}, {"index": 0}, {"error": {}}, {"message": 3},
]  # fmt: skip


def flip(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice([1, 1, 3, 20])):
        if data:
            data[rng.randrange(len(data))] = rng.randrange(256)


def insert(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.choice(JUNK)


def remove(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    del data[at : at + rng.choice([1, 1, 5, 50, 500])]


def truncate(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data) + 1) :]


def shuffle_events(data: bytearray, rng: random.Random) -> None:
    """Events twice, missing, in another order."""
    events = bytes(data).split(b"\n\n")
    for _ in range(rng.choice([1, 2, 5])):
        a, b = rng.randrange(len(events)), rng.randrange(len(events))
        match rng.randrange(3):
            case 0:
                events[a], events[b] = events[b], events[a]
            case 1:
                events.insert(a, events[b])
            case _ if len(events) > 1:
                del events[a]
    data[:] = b"\n\n".join(events)


def change_json(data: bytearray, rng: random.Random) -> None:
    """A value of another type, a field that is missing, renamed or one too many, inside an event that stays JSON."""
    events = bytes(data).split(b"\n\n")
    for _ in range(rng.choice([1, 2, 6])):
        at = rng.randrange(len(events))
        head, _, payload = events[at].partition(b"data: ")
        try:
            value = json.loads(payload)
        except (ValueError, RecursionError):
            continue
        _change(value, rng)
        events[at] = head + b"data: " + json.dumps(value).encode()
    data[:] = b"\n\n".join(events)


def _change(value: Any, rng: random.Random) -> None:
    node = value
    while isinstance(node, (dict, list)) and node:
        keys: list[Any] = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = rng.choice(keys)
        if isinstance(node[key], (dict, list)) and node[key] and rng.random() < 0.8:
            node = node[key]
            continue
        match rng.randrange(4):
            case 0:
                del node[key]
            case 1 if isinstance(node, dict):
                node[rng.choice(["index", "type", "delta", "content", "id", "error", "novel", "usage"])] = node.pop(key)
            case 2 if isinstance(node, list):
                node.append(rng.choice(VALUES))
            case _:
                node[key] = rng.choice(VALUES)
        return


KINDS: list[Callable[[bytearray, random.Random], None]] = [
    flip, insert, remove, truncate, shuffle_events, change_json, change_json, change_json,
]  # fmt: skip


def mutated(dialect: Dialect, rng: random.Random) -> bytes:
    data = bytearray(rng.choice(seeds(dialect)))
    if rng.random() < 0.05:  # the tail of a stranger's stream
        other = rng.choice(seeds(rng.choice(list(DIALECTS))))
        data[rng.randrange(len(data) + 1) :] = other[rng.randrange(len(other) + 1) :]
    for _ in range(rng.choice([1, 1, 2, 4])):
        rng.choice(KINDS)(data, rng)
    return bytes(data)


# ── what must hold, whatever came ────────────────────────────────────────────────────────────────────────────


def check(wire: WireDialect, raw: bytes, rng: random.Random) -> None:
    quirks = WireQuirks(*(rng.random() < 0.1 for _ in WireQuirks.__struct_fields__))
    began = time.perf_counter()
    deltas, body, complete = _decoded(wire, [raw], quirks)
    assert all(isinstance(delta, ALL_DELTAS) for delta in deltas)
    errors = [delta for delta in deltas if isinstance(delta, ErrorDelta)]
    assert complete is not bool(errors), "a stream is complete or it failed"
    assert errors == deltas[-1:] if errors else True, "nothing follows an error"
    assert all(error.kind in ("retryable", "permanent") and error.message for error in errors)
    completion = wire.completion_from_body(msgspec.json.decode(body))
    assert isinstance(completion, Completion)
    history: tuple[Message, ...] = (user("q"), completion.message, user("go on"))
    for stream in (True, False):
        msgspec.json.encode(wire.encode_request(ModelRequest("m", history), stream=stream))
    assert _decoded(wire, random_pieces(raw, rng), quirks) == (deltas, body, complete)
    assert time.perf_counter() - began < MAX_SECONDS


def _decoded(wire: WireDialect, pieces: list[bytes], quirks: WireQuirks) -> tuple[list[AnyDelta], bytes, bool]:
    decoder = wire.decoder(quirks)
    deltas = [delta for piece in pieces for delta in decoder.feed(piece)] + decoder.close()
    msgspec.json.encode(deltas)
    return deltas, msgspec.json.encode(decoder.rebuilt_body()), decoder.complete


@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("dialect", list(DIALECTS))
def test_a_mutated_stream_gives_typed_values_and_nothing_else(dialect: Dialect, shard: int) -> None:
    for number in range(shard, MUTATIONS // len(DIALECTS) + 1, SHARDS):
        rng = random.Random(f"{dialect} {number}")
        raw = mutated(dialect if rng.random() < 0.95 else rng.choice(list(DIALECTS)), rng)  # now and then a stranger's
        try:
            check(DIALECTS[dialect], raw, rng)
        except BaseException as exc:
            exc.add_note(f"mutation {number} of {dialect}: {base64.b64encode(raw).decode()}")
            raise


NO_STREAMS = [
    b"", b"\x7fELF\x02\x01\x01\0" * 500, b"\n" * 5000, b"data:\n\n" * 2000, b'data: {"a":' * 3000,
    b"data: " + b"[" * 50_000 + b"\n\n",
    b'data: {"type":"x","choices":[{"delta":{"content":"a","x":' + b"[" * 900 + b"]" * 900 + b"}}]}\n\n",
]  # fmt: skip


@pytest.mark.parametrize("dialect", list(DIALECTS))
@pytest.mark.parametrize("raw", NO_STREAMS, ids=range(len(NO_STREAMS)))
def test_what_is_no_stream_at_all(dialect: Dialect, raw: bytes) -> None:
    check(DIALECTS[dialect], raw, random.Random(0))


@pytest.mark.parametrize("dialect", list(DIALECTS))
def test_the_seeds_themselves_are_whole(dialect: Dialect) -> None:
    """A fuzzer that starts from broken streams tests only their rejection."""
    for raw in SYNTHETIC[dialect][:2]:
        _, body, complete = _decoded(DIALECTS[dialect], [raw], WireQuirks())
        assert complete
        assert DIALECTS[dialect].completion_from_body(msgspec.json.decode(body)).finish_reason
