"""Bodies from outside: their shape is known before they are decoded, and their memory is bounded together."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from server.http_server import raw, running_server
from tailrace.server.http.body_budget import ARRIVING_BYTES, FREE_BYTES, BodyBudget, BodyClaim
from tailrace.server.http.json_shape import (
    MAX_DEPTH,
    MAX_VALUES,
    MAX_WIDE_BYTES,
    STEP_BYTES,
    scanned_shape,
    small_problem,
    small_shape,
)
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import ARRIVED_BYTES, read_body
from tailrace.server.http.route import Route
from tailrace.testing.clock import driven

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
)


def depth(value: object) -> int:
    match value:
        case dict():
            return 1 + max(map(depth, value.values()), default=0)
        case list():
            return 1 + max(map(depth, value), default=0)
        case _:
            return 0


@given(JSON)
def test_J126_the_scan_finds_the_depth_of_any_json(value: object) -> None:
    assert scanned_shape(json.dumps(value).encode()).depth == depth(value)
    assert scanned_shape(json.dumps(value, ensure_ascii=False).encode()).depth == depth(value)
    padded = b"[" + b"[]," * 200 + json.dumps(value).encode() + b"]"
    assert small_shape(padded) == scanned_shape(padded)


@pytest.mark.parametrize("size", [STEP_BYTES - 2, STEP_BYTES - 1, STEP_BYTES, STEP_BYTES + 1, 3 * STEP_BYTES])
@pytest.mark.parametrize("inside", [b"x", b"\\\\", b'\\"', b"[", b","])
def test_J126_strings_of_any_length_are_one_value(size: int, inside: bytes) -> None:
    string = b'"' + inside * (size // len(inside)) + b'"'
    assert scanned_shape(b"[" + string + b",[1]," + string + b"]") == (2, 4, 0)
    assert scanned_shape(b"[" + string[:-1]).depth == 1
    assert scanned_shape(b'["' + b"x" * size + b"\\") == (1, 1, 0)


@pytest.mark.parametrize(
    "body", [b"", b"[" * MAX_DEPTH, b"[" * (MAX_DEPTH + 1), b"," * MAX_VALUES, b"," * (MAX_VALUES + 1), b'"[[,' * 900]
)
def test_J126_a_small_body_is_judged_as_a_scanned_one(body: bytes) -> None:
    assert small_problem(body) == scanned_shape(body).problem


def test_L140_too_many_values_are_refused_before_they_are_made() -> None:
    assert "values" in scanned_shape(b"[" + b"1," * MAX_VALUES + b"1]").problem
    assert "nested" in scanned_shape(b"[" * (MAX_DEPTH + 1)).problem
    text = json.dumps({"text": "a, b: [c] " * MAX_VALUES}).encode()
    assert not scanned_shape(text).problem


@pytest.mark.parametrize(
    ("last", "length", "problem"),
    [
        (b"x", MAX_WIDE_BYTES, ""),
        ("😀".encode(), MAX_WIDE_BYTES, "not ASCII"),
        (rb"\u20ac", MAX_WIDE_BYTES, "not ASCII"),
        (rb"\u003c", MAX_WIDE_BYTES, ""),
        ("😀".encode(), MAX_WIDE_BYTES // 2, ""),
    ],
)
def test_L143_one_wide_character_does_not_widen_megabytes(last: bytes, length: int, problem: str) -> None:
    """A picture beside a text that is not ASCII stays what it is."""
    body = b'{"image":"%b","text":"%b%b","other":"\xc3\xa9"}' % (b"A" * MAX_WIDE_BYTES, b"x" * length, last)
    assert problem in scanned_shape(body).problem
    assert bool(problem) is bool(scanned_shape(body).problem)


async def test_L140_a_body_of_too_many_values_gets_400(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        data = b'{"input": [' + b"1," * MAX_VALUES + b"1]}"
        async with server.client.post(server.url + "/runs", data=data) as response:
            assert response.status == 400
            assert f"more than {MAX_VALUES} values" in (await response.json())["error"]["message"]


# ── together ─────────────────────────────────────────────────────────────────────────────────────────────────


@driven
async def test_L143_bodies_are_bounded_together_and_given_back() -> None:
    budget = BodyBudget(1000, wait_s=5)
    first, second = BodyClaim(budget), BodyClaim(budget)
    await first.grow(600)
    assert budget.left == 400
    with pytest.raises(TimeoutError):
        await second.grow(500)
    assert budget.left == 400
    waiting = asyncio.ensure_future(second.grow(501))
    await asyncio.sleep(1)
    assert not waiting.done()
    first.release()
    first.release()
    await waiting
    assert budget.left == 499
    second.release()
    assert budget.left == 1000


@driven
async def test_L143_what_a_connection_holds_of_a_body_is_taken_until_the_body_is_here() -> None:
    budget = BodyBudget(3 * ARRIVING_BYTES, wait_s=5)
    large, small, third = BodyClaim(budget), BodyClaim(budget), BodyClaim(budget)
    await large.grow(ARRIVING_BYTES)
    await small.grow(ARRIVING_BYTES)
    await large.grow(FREE_BYTES + 1)
    with pytest.raises(TimeoutError):
        await third.grow(ARRIVING_BYTES)
    await small.grow(FREE_BYTES - 1)
    small.arrived()  # it counts no more
    large.arrived()
    assert budget.left == 3 * ARRIVING_BYTES - FREE_BYTES - 1
    large.release()
    assert (budget.left, budget.holders) == (3 * ARRIVING_BYTES, 0)


async def test_L143_a_body_without_room_is_refused_before_it_is_read(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        budget = server.pipeline.body_budget
        budget.wait_s = 0.05
        holder = BodyClaim(budget)
        await holder.grow(budget.left)
        head = b"POST /runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2000000\r\n\r\n"
        told = await raw(server.port(), head)  # and not a byte of the body
        status, _ = await server.json("POST", "/runs", {"input": "x" * 1000})
        holder.release()
    assert (status, told[:13]) == (201, b"HTTP/1.1 503 "), told
    assert b"Retry-After: 5\r\n" in told


@driven
async def test_L143_of_bodies_that_wait_for_each_other_one_is_refused_at_once() -> None:
    budget = BodyBudget(1000)
    first, second = BodyClaim(budget), BodyClaim(budget)
    await first.grow(600)
    await second.grow(300)
    waiting = asyncio.ensure_future(first.grow(300))
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        await second.grow(300)
    second.release()
    await waiting
    assert budget.left == 100


async def test_L143_what_does_not_fit_is_told_to_come_back(tmp_path: Path) -> None:
    held, go_on = asyncio.Event(), asyncio.Event()

    def holding(_: RequestPipeline) -> Sequence[Route]:
        async def hold(request: web.Request) -> web.Response:
            await read_body(request, as_json=False)
            held.set()
            await go_on.wait()
            return web.Response()

        return [Route("POST", "/v1/hold", hold, "any", "Holds its body.")]

    async with running_server(tmp_path, extra=(holding,), config="server: {max_body_mb: 0.2}\n") as server:
        budget = server.pipeline.body_budget
        whole = budget.left
        large = b"x" * 200_000
        holders = [asyncio.ensure_future(server.client.post(server.url + "/v1/hold", data=large)) for _ in range(2)]
        while budget.left > whole - 2 * 200_000:
            held.clear()
            await held.wait()
        budget.wait_s = 0.05
        status, told = await server.json("POST", "/v1/hold", "x" * 199_000)
        assert (status, told["error"]["code"]) == (503, "overloaded")
        go_on.set()
        for holder in holders:
            (await holder).close()
    assert budget.left == whole


async def test_L143_what_a_body_has_no_room_for_stays_with_the_system(tmp_path: Path) -> None:
    requests: list[web.Request] = []

    def reading(_: RequestPipeline) -> Sequence[Route]:
        async def read(request: web.Request) -> web.Response:
            requests.append(request)
            return web.Response(text=str(len(await read_body(request, as_json=False))))

        return [Route("POST", "/v1/read", read, "any", "Reads its body.")]

    async with running_server(tmp_path, extra=(reading,)) as server:
        budget = server.pipeline.body_budget
        holder = BodyClaim(budget)
        await holder.grow(budget.left - ARRIVING_BYTES - 10)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port())
        writer.write(b"POST /v1/read HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 300000\r\n\r\n" + b"x" * 1000)
        while budget.holders < 2:  # noqa: ASYNC110 - until the piece that was too large is in the reader's hand
            await asyncio.sleep(0)
        for _ in range(9):
            writer.write(b"x" * 33_000)
            await writer.drain()
            assert (await server.json("GET", "/v1/models"))[0] == 200
        writer.write(b"x" * 2000)
        assert requests[0].content.total_bytes <= 1000 + 33_000
        holder.release()
        told = await reader.readuntil(b"\r\n\r\n300000")
        writer.close()
    assert told.startswith(b"HTTP/1.1 200 ")


# ── compressed bodies ────────────────────────────────────────────────────────────────────────────────────────

HEAD = "POST /runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Encoding: {}\r\nContent-Length: {}\r\n{}\r\n"
LIMIT = "server: {max_body_mb: 1}\n"


def echoing(_: RequestPipeline) -> Sequence[Route]:
    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await read_body(request, as_json=False))

    return [Route("POST", "/v1/echo", echo, "any", "Sends its body back.")]


@pytest.mark.parametrize("expect", ["", "Expect: 100-continue\r\n"])
async def test_O176_without_a_key_no_byte_of_a_body_is_asked_for_or_unpacked(tmp_path: Path, expect: str) -> None:
    body = b"" if expect else b"these bytes are no gzip"
    async with running_server(tmp_path, config=LIMIT, env={"TAILRACE_API_KEY": "k"}) as server:
        told = await raw(server.port(), HEAD.format("gzip", 1_000_000, expect).encode() + body)
    assert told.startswith(b"HTTP/1.1 401 "), told
    assert b"Connection: close\r\n" in told


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "identity"])
async def test_a_compressed_body_is_what_it_was_before(tmp_path: Path, encoding: str) -> None:
    body = b"".join(b"%d " % number for number in range(100_000))
    packed = {"gzip": gzip.compress(body), "deflate": zlib.compress(body), "identity": body}[encoding]
    async with running_server(tmp_path, extra=(echoing,)) as server:
        asked = server.client.post(
            server.url + "/v1/echo", data=packed, headers={"Content-Encoding": encoding}, expect100=True
        )
        async with asked as response:
            assert await response.read() == body


@pytest.mark.parametrize(
    ("packed", "encoding", "status"),
    [
        (gzip.compress(bytes(1_000_001)), "gzip", 413),
        (gzip.compress(b"{}")[:-9], "gzip", 400),
        (gzip.compress(b"{}") * 2, "gzip", 400),
        (b"these bytes are no gzip", "gzip", 400),
        (b"{}", "br", 415),
    ],
    ids=["too large", "cut off", "two bodies", "not packed", "another encoding"],
)
async def test_O176_what_cannot_be_unpacked_within_the_limits_is_refused(
    tmp_path: Path, packed: bytes, encoding: str, status: int
) -> None:
    headers = {"Content-Encoding": encoding}
    async with (
        running_server(tmp_path, extra=(echoing,), config=LIMIT) as server,
        server.client.post(server.url + "/v1/echo", data=packed, headers=headers) as response,
    ):
        assert response.status == status, await response.text()


async def test_O176_a_body_is_unpacked_in_steps_between_which_the_loop_goes_on(tmp_path: Path) -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with running_server(tmp_path, extra=(echoing,)) as server:
        packed = gzip.compress(bytes(20_000_000))
        headers = {"Content-Encoding": "gzip"}
        counting = asyncio.ensure_future(count_turns())
        async with server.client.post(server.url + "/v1/echo", data=packed, headers=headers) as response:
            before = turns
            assert response.status == 200
        counting.cancel()
    assert before > 20_000_000 // ARRIVED_BYTES
