"""Bodies from outside: their shape is known before they are decoded, and their memory is bounded together."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from server.http_server import running_server
from tailrace.server.http.body_budget import FREE_BYTES, BodyBudget
from tailrace.server.http.json_shape import (
    MAX_DEPTH,
    MAX_VALUES,
    STEP_BYTES,
    scanned_shape,
    small_problem,
    small_shape,
)
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import read_body
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
    assert scanned_shape(b"[" + string + b",[1]," + string + b"]") == (2, 4)
    assert scanned_shape(b"[" + string[:-1]).depth == 1
    assert scanned_shape(b'["' + b"x" * size + b"\\") == (1, 1)


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
    first, second, small = budget.claim(), budget.claim(), budget.claim()
    await first.grow(FREE_BYTES + 600)
    await small.grow(FREE_BYTES)
    assert budget.left == 400
    with pytest.raises(TimeoutError):
        await second.grow(FREE_BYTES + 500)
    assert budget.left == 400
    waiting = asyncio.ensure_future(second.grow(1))
    await asyncio.sleep(1)
    assert not waiting.done()
    first.release()
    first.release()
    await waiting
    assert budget.left == 499
    second.release()
    small.release()
    assert budget.left == 1000


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
        budget.wait_s = 0.05
        large = b"x" * 200_000
        holders = [asyncio.ensure_future(server.client.post(server.url + "/v1/hold", data=large)) for _ in range(5)]
        while budget.left > whole - 5 * (200_000 - FREE_BYTES):
            held.clear()
            await held.wait()
        status, told = await server.json("POST", "/v1/hold", "x" * 199_000)
        assert (status, told["error"]["code"]) == (503, "overloaded")
        go_on.set()
        for holder in holders:
            (await holder).close()
    assert budget.left == whole
