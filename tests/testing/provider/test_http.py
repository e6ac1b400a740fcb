"""The provider's request reader: any split of the bytes gives the same requests, and there are limits."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.testing.provider.http import MAX_BODY_BYTES, MAX_HEAD_BYTES, BadRequest, HttpRequest, RequestReader

RAW = (
    b'POST /v1/messages?beta=true HTTP/1.1\r\nHost: x\r\nContent-Length: 7\r\nX-Api-Key: a:b\r\n\r\n{"a":1}'
    b"POST /v1/responses HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'3\r\n{"b\r\n3;ext=1\r\n":2\r\n1\r\n}\r\n0\r\n\r\n'
    b"POST /v1/responses HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nTrailer: x\r\n\r\n"
    b"GET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n"
)
REQUESTS = [
    HttpRequest("POST", "/v1/messages?beta=true", {"host": "x", "content-length": "7", "x-api-key": "a:b"}, b'{"a":1}'),
    HttpRequest("POST", "/v1/responses", {"transfer-encoding": "chunked"}, b'{"b":2}'),
    HttpRequest("POST", "/v1/responses", {"transfer-encoding": "chunked"}, b"{}"),
    HttpRequest("GET", "/v1/models", {"connection": "close"}),
]


def read(pieces: list[bytes]) -> list[HttpRequest]:
    reader = RequestReader()
    return [request for piece in pieces for request in reader.feed(piece)]


@given(cuts=st.lists(st.integers(0, len(RAW))))
def test_any_split_gives_the_same_requests(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(RAW)]
    assert read([RAW[start:end] for start, end in pairwise(edges)]) == REQUESTS


def test_every_single_split_gives_the_same_requests() -> None:
    for at in range(len(RAW)):
        assert read([RAW[:at], RAW[at:]]) == REQUESTS


def test_what_a_request_says_of_itself() -> None:
    assert REQUESTS[0].path == "/v1/messages"
    assert REQUESTS[0].keeps_alive
    assert not REQUESTS[-1].keeps_alive


def test_a_client_that_waits_to_be_told_is_seen() -> None:
    reader = RequestReader()
    assert reader.feed(b"POST / HTTP/1.1\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n") == []
    assert reader.expects_continue
    assert [request.body for request in reader.feed(b"{}")] == [b"{}"]
    assert not reader.expects_continue


@pytest.mark.parametrize(
    "raw",
    [
        b"HELO\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1),
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nfffffffff\r\n" + b"x" * (MAX_BODY_BYTES + 1),
        b"GET / HTTP/1.1\r\nx: " + b"y" * MAX_HEAD_BYTES,
    ],
)
def test_J126_what_is_malformed_or_too_large_is_refused(raw: bytes) -> None:
    with pytest.raises(BadRequest):
        RequestReader().feed(raw)
