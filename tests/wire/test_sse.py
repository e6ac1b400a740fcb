from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.wire.sse import SseDecoder, SseEvent, encode_comment, encode_event
from wire.recordings import WIRE_DIR, needs_recordings, split_at

RAW = (
    '\ufeff: hello\r\nid: 7\ndata: {"a": 1}\r\rdata:zwei\r\ndata: \u2028drei\x85\n\nevent: ping\n\n'
    "id: bad\0id\nretry: 250\nevent: done\rdata\r\n\r\ndata: a: b\n\nid: 8\n: c\n\ndata: żółw 🐢\n\ndata: lost"
).encode()


def decode(pieces: list[bytes]) -> list[SseEvent]:
    decoder = SseDecoder()
    return [event for piece in pieces for event in decoder.feed(piece)]


WHOLE = decode([RAW])


def test_A03_A05_A07_A08_A11_A12_A15_what_the_sample_says() -> None:
    assert decode([RAW]) == [
        SseEvent(b'{"a": 1}', "message", "7"),
        SseEvent("zwei\n\u2028drei\x85".encode(), "message", "7"),
        SseEvent(b"", "done", "7"),
        SseEvent(b"a: b", "message", "7"),
        SseEvent("żółw 🐢".encode(), "message", "8"),
    ]


@given(cuts=st.lists(st.integers(0, len(RAW)), max_size=40))
def test_A01_A02_A04_any_split_gives_the_same_events(cuts: list[int]) -> None:
    assert decode(split_at(RAW, cuts)) == WHOLE


def test_A01_byte_by_byte_and_every_two_way_split() -> None:
    assert decode([RAW[i : i + 1] for i in range(len(RAW))]) == WHOLE
    for cut in range(len(RAW)):
        assert decode([RAW[:cut], RAW[cut:]]) == WHOLE


fields = st.text(st.characters(blacklist_characters="\r\n\0", blacklist_categories=["Cs"]))


@given(data=st.text(st.characters(blacklist_categories=["Cs"])), event=fields, event_id=fields)
def test_decoding_gives_back_what_was_encoded(data: str, event: str, event_id: str) -> None:
    raw = encode_comment("ping") + encode_event(data, event=event, id=event_id)
    lines = data.replace("\r\n", "\n").replace("\r", "\n")
    assert decode([raw]) == [SseEvent(lines.encode(), event or "message", event_id)]


@pytest.mark.parametrize("name", ["event", "id"])
@pytest.mark.parametrize("bad", ["a\nb", "a\rb", "a\0b"])
def test_J121_fields_cannot_break_out(name: str, bad: str) -> None:
    with pytest.raises(ValueError, match=name):
        encode_event("x", event=bad if name == "event" else "", id=bad if name == "id" else "")


def test_a_comment_of_several_lines_stays_a_comment() -> None:
    assert decode([encode_comment("a\ndata: b\r\ndata: c"), encode_comment(), b"data: d\n\n"]) == [SseEvent(b"d")]


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_A20_an_endless_line_is_refused_and_what_came_before_is_kept(step: int) -> None:
    raw = b"data: 1\n\ndata: " + b"x" * 200 + b"\n\ndata: 2\n\n"
    decoder = SseDecoder(max_event_bytes=100)
    events = [e for i in range(0, len(raw), step) for e in decoder.feed(raw[i : i + step])]
    assert events == [SseEvent(b"1")]
    assert decoder.error is not None
    assert "100 bytes" in str(decoder.error)


def test_A15_an_unfinished_event_is_not_dispatched() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: 1\n\ndata: 2\n") == [SseEvent(b"1")]
    assert decoder.unfinished_block() == b"data: 2"
    assert decoder.feed(b"\n") == [SseEvent(b"2")]
    assert not decoder.unfinished_block()


def test_the_last_event_id_is_kept() -> None:
    decoder = SseDecoder()
    decoder.feed(b"retry: 1500\nid: a\ndata\n\nid\ndata\n\n")
    assert decoder.last_event_id == ""


def test_time_is_linear_in_the_bytes_of_one_long_event() -> None:
    def seconds(size: int) -> float:
        decoder, start = SseDecoder(), time.process_time()
        for _ in range(size):
            decoder.feed(b"x" * 16)
        return time.process_time() - start

    small = min(seconds(5_000) for _ in range(3))
    large = min(seconds(50_000) for _ in range(3))
    assert large < 40 * small  # ten times the bytes; a quadratic decoder would take a hundred times as long


def vectors() -> list[Any]:
    if WIRE_DIR is None:
        return []
    loaded = json.loads((WIRE_DIR / "sse_vectors.json").read_text(encoding="utf-8"))["vectors"]
    return [pytest.param(v, id=v["name"]) for v in loaded]


@needs_recordings
@pytest.mark.parametrize("vector", vectors())
def test_the_web_platforms_own_vectors(vector: dict[str, Any]) -> None:
    raw = base64.b64decode(vector["body"])
    expected = [tuple(event) for event in vector["events"]]

    def said(pieces: list[bytes]) -> list[tuple[str, str]]:
        return [(event.event, event.text) for event in decode(pieces)]

    assert said([raw]) == expected
    assert said([raw[i : i + 1] for i in range(len(raw))]) == expected
    assert all(said([raw[:cut], raw[cut:]]) == expected for cut in range(len(raw)))
