"""Lines of JSON-RPC: what is a message, what is answered with an error, and what never reaches the SDK."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.system.json_rpc.lines import LineSplitter, NotRpc, read_line

BYTES = b'{"jsonrpc":"2.0","id":1,"method":"a"}\n\n[]\n' + b"x" * 40 + b'\n{"id":2,"result":null}\nno end'


def error_of(line: bytes | None) -> tuple[int, Any]:
    answer = read_line(line)
    assert isinstance(answer, NotRpc)
    assert answer.reply.endswith(b"\n")
    told = json.loads(answer.reply)
    assert told["jsonrpc"] == "2.0"
    return told["error"]["code"], told["id"]


@given(cuts=st.lists(st.integers(0, len(BYTES))))
def test_any_split_gives_the_same_lines(cuts: list[int]) -> None:
    whole = LineSplitter(38)
    places = sorted({0, *cuts, len(BYTES)})
    cut = LineSplitter(38)
    lines = [line for start, end in pairwise(places) for line in cut.feed(BYTES[start:end])]
    assert [*lines, *cut.close()] == [*whole.feed(BYTES), *whole.close()]
    assert [*lines].count(None) == 1  # the long line is reported once


@pytest.mark.parametrize(
    "line",
    [b"hello", b"{", b'{"id":1', b"\xff\xfe", b'"\xed\xa0\x80"', b"NaN", b"[" * 100_000, b"x" * 10_000_000],
    ids=lambda line: repr(line[:12]),
)
def test_what_is_not_json_gets_a_parse_error(line: bytes) -> None:
    assert error_of(line) == (-32700, None)


@pytest.mark.parametrize("line", [b"[]", b"42", b"null", b'"text"', b"{}", b'[{"id":1,"method":"a"}]', b'{"result":1}'])
def test_what_is_no_message_gets_an_invalid_request(line: bytes) -> None:
    assert error_of(line) == (-32600, None)


def test_a_line_that_was_too_long_gets_an_error() -> None:
    assert error_of(None) == (-32600, None)


def test_the_error_carries_the_id_where_there_is_one() -> None:
    assert error_of(b'{"id":"a","method":5}') == (-32600, "a")
    assert error_of(b'{"id":7}') == (-32600, 7)


@pytest.mark.parametrize("number", ["[1]", "{}", "true", "1.5"])
def test_an_id_of_another_type_never_reaches_the_sdk(number: str) -> None:
    """The SDK looks such an id up in a table and ends."""
    assert error_of(b'{"id":%b,"result":1}' % number.encode()) == (-32600, None)


def test_an_error_that_is_no_object_becomes_one() -> None:
    message = read_line(b'{"id":0,"error":"broken"}')
    assert message == {"id": 0, "error": {"code": -32603, "message": "broken"}}


@pytest.mark.parametrize("line", [b"", b"  \r", b"\t"])
def test_blank_lines_are_nothing(line: bytes) -> None:
    assert read_line(line) is None
