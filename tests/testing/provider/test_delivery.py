"""How the provider delivers: every break at its byte, every pause on the loop's clock, every departure noticed."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
import time
import zlib
from contextlib import suppress
from email.utils import parsedate_to_datetime

import aiohttp
import pytest

from tailrace.testing.clock import driven
from tailrace.testing.provider import REPLIES, Break, FaultyProvider, Offset, Scenario
from testing.raw_client import PATHS, connected, encoded, hear

DIALECTS = sorted(PATHS)


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_stream_comes_an_event_at_a_time_and_is_ended(dialect: str) -> None:
    async with FaultyProvider() as server:
        heard = await hear(server, dialect, "ok")
    assert heard.status == 200
    assert heard.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert heard.ended
    assert all(chunk.endswith(b"\n\n") and chunk.count(b"data: ") == 1 for chunk in heard.chunks[:-1])
    (request,) = server.requests
    assert request.bytes_sent == len(heard.body)
    assert request.finished_at is not None
    assert request.disconnected_at is None


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_D48_a_cut_at_any_byte_gives_exactly_the_bytes_before_it(dialect: str) -> None:
    """Every 97th byte of the stream here; the offsets of a body are those of `ok` with a name as long."""
    async with FaultyProvider(script=["ok"]) as server:
        whole = (await hear(server, dialect, "any")).body
        for at in [*range(0, len(whole), 97), len(whole)]:
            server.extend(f"cut@{at}")
            heard = await hear(server, dialect, "any")
            assert (heard.body, heard.ended) == (whole[:at], False)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_plain_answer_is_cut_as_well(dialect: str) -> None:
    async with FaultyProvider(script=["ok", "cut@40"]) as server:
        whole = (await hear(server, dialect, "any", stream=False)).body
        heard = await hear(server, dialect, "any", stream=False)
    assert heard.headers["content-length"] == str(len(whole))
    assert heard.body == whole[:40]


async def test_an_early_end_looks_complete_to_http() -> None:
    async with FaultyProvider(script=["ok", "end@50%"]) as server:
        whole = (await hear(server, "chat", "any")).body
        heard = await hear(server, "chat", "any")
    assert heard.ended
    assert heard.body == whole[: len(whole) // 2]


async def test_a_reset_is_a_reset() -> None:
    async with FaultyProvider() as server:
        heard = await hear(server, "chat", "reset@100")
    assert heard.reset
    assert len(heard.body) == 100


async def test_E67_a_dropped_connection_says_nothing() -> None:
    async with FaultyProvider() as server:
        heard = await hear(server, "chat", "drop")
    assert heard.raw == b""


async def test_E67_a_pooled_connection_dies_under_its_second_request() -> None:
    """aiohttp's own pool is the client: the connection that served the first request fails the second."""
    async with FaultyProvider(script=["ok", "drop", "ok"]) as server, aiohttp.ClientSession() as session:
        url = server.url + PATHS["chat"]
        async with session.post(url, json={"model": "x"}) as response:
            await response.read()
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await session.post(url, json={"model": "x"})
        async with session.post(url, json={"model": "x"}) as response:
            assert response.status == 200
            await response.read()
    assert [request.connection for request in server.requests] == [0, 0, 1]
    assert server.open_connections == 0


@driven
async def test_E59_a_stall_sends_what_is_before_it_and_then_nothing() -> None:
    async with FaultyProvider(script=["stall@300"]) as server, connected(server) as (reader, writer):
        writer.write(encoded("anthropic", "any"))
        await reader.readuntil(b"\r\n\r\n")
        began = now()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readuntil(b"never"), 900)
        assert now() - began == pytest.approx(900)
        assert server.requests[0].bytes_sent == 300
        assert not server.requests[0].over.is_set()


@pytest.mark.parametrize("model", ["stall@0", "stall@300", "silence", "slow-headers@3600", "pings", "half-close@10"])
@driven
async def test_F68_a_client_that_leaves_is_noticed_at_once(model: str) -> None:
    """Also while nothing is being said, and before the first byte."""
    async with FaultyProvider() as server:
        async with connected(server) as (_, writer):
            writer.write(encoded("chat", model))
            request = await server.request()
            await asyncio.sleep(2)
            left_at = now()
        await request.over.wait()
    assert request.disconnected_at == left_at
    assert request.finished_at is None


async def test_F68_it_is_prompt_in_real_time_too() -> None:
    async with FaultyProvider() as server:
        async with connected(server) as (_, writer):
            writer.write(encoded("chat", "stall@300"))
            request = await server.request()
        left = time.monotonic()
        await request.over.wait()
    assert time.monotonic() - left < 10.0


async def test_a_half_closed_connection_still_hears_the_client() -> None:
    async with FaultyProvider() as server, connected(server) as (reader, writer):
        writer.write(encoded("chat", "half-close@10"))
        raw = await reader.read()
        assert not raw.endswith(b"0\r\n\r\n")
        assert server.open_connections == 1
        assert not server.requests[0].over.is_set()


@pytest.mark.parametrize("dialect", DIALECTS)
@driven
async def test_E60_pings_come_for_ever_after_the_first_event(dialect: str) -> None:
    ping = {"chat": b": keep-alive", "responses": b'{"type":"keepalive"}', "anthropic": b'{"type":"ping"}'}[dialect]
    async with FaultyProvider() as server, connected(server) as (reader, writer):
        writer.write(encoded(dialect, "pings"))
        began, heard = now(), b""
        while heard.count(ping) < 100:
            heard += await reader.read(4096)
        assert now() - began == pytest.approx(99 * 5)


@driven
async def test_comments_alone_come_for_ever() -> None:
    async with FaultyProvider() as server, connected(server) as (reader, writer):
        writer.write(encoded("responses", "only-comments"))
        await reader.readuntil(b"\r\n\r\n")
        for _ in range(50):
            assert await reader.readuntil(b"\n\n\r\n") == b"e\r\n: keep-alive\n\n\r\n"


async def test_A20_a_line_without_end_goes_on_until_the_client_leaves() -> None:
    async with FaultyProvider() as server:
        async with connected(server) as (reader, writer):
            writer.write(encoded("chat", "endless-line"))
            received = 0
            while received < 5_000_000:
                received += len(await reader.read(1 << 20))
        await server.requests[0].over.wait()
    assert server.requests[0].bytes_sent > 4_000_000


@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_A01_dripping_changes_the_writes_and_not_the_bytes(size: int) -> None:
    async with FaultyProvider(script=["unicode", f"unicode+drip@{size}"]) as server:
        whole = (await hear(server, "chat", "any")).body
        heard = await hear(server, "chat", "any")
    assert heard.body == whole
    assert {len(chunk) for chunk in heard.chunks[:-2]} == {size}


@driven
async def test_the_pace_is_the_loops_time() -> None:
    async with FaultyProvider() as server:
        began = now()
        heard = await hear(server, "chat", "ok+pace@10")
        assert now() - began == pytest.approx(10 * (len(heard.chunks) - 2))


@driven
async def test_slow_headers_come_in_their_time() -> None:
    async with FaultyProvider() as server:
        began = now()
        assert (await hear(server, "chat", "slow-headers@45")).status == 200
        assert now() - began == pytest.approx(45)


async def test_A22_a_compressed_stream_can_be_read_as_it_comes() -> None:
    async with FaultyProvider(script=["ok", "gzip"]) as server:
        whole = (await hear(server, "chat", "any")).body
        heard = await hear(server, "chat", "any")
    assert heard.headers["content-encoding"] == "gzip"
    assert gzip.decompress(heard.body) == whole
    inflate = zlib.decompressobj(wbits=31)
    first = inflate.decompress(heard.chunks[0])
    assert first.endswith(b"\n\n")
    assert first.count(b"data: ") == 1


async def test_A22_a_stream_can_state_its_length() -> None:
    async with FaultyProvider() as server:
        heard = await hear(server, "chat", "content-length")
    assert heard.headers["content-length"] == str(len(heard.body))
    assert "transfer-encoding" not in heard.headers
    assert heard.body.endswith(b"data: [DONE]\n\n")


async def test_A19_other_things_than_a_stream() -> None:
    async with FaultyProvider() as server:
        page = await hear(server, "chat", "html")
        plain = await hear(server, "chat", "json")
        unasked = await hear(server, "chat", "sse", stream=False)
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert plain.headers["content-type"] == "application/json"
    assert json.loads(plain.body)["choices"][0]["message"]["content"] == REPLIES["ok"].reply.text
    assert unasked.headers["content-type"].startswith("text/event-stream")


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_streaming_can_be_refused_and_the_plain_way_left_open(dialect: str) -> None:
    async with FaultyProvider() as server:
        refused = await hear(server, dialect, "no-streaming")
        taken = await hear(server, dialect, "no-streaming", stream=False)
    assert refused.status == 400
    assert b"Streaming is not supported" in refused.body
    assert taken.status == 200


async def test_E66_retry_after_in_seconds_as_a_date_and_huge() -> None:
    async with FaultyProvider() as server:
        answers = {
            model: (await hear(server, "chat", model)).headers.get("retry-after")
            for model in ("status-429", "status-429-after-2.5", "status-503-after-date-30", "status-429-after-huge")
        }
    assert answers["status-429"] is None
    assert answers["status-429-after-2.5"] == "2.5"
    assert answers["status-429-after-huge"] == "31536000"
    ahead = parsedate_to_datetime(str(answers["status-503-after-date-30"])).timestamp() - time.time()
    assert 0 < ahead <= 30


async def test_an_error_page_of_a_proxy() -> None:
    async with FaultyProvider() as server:
        heard = await hear(server, "anthropic", "status-502-html")
    assert (heard.status, heard.headers["content-type"]) == (502, "text/html; charset=utf-8")


async def test_ids_and_times_depend_on_the_request_alone() -> None:
    async with FaultyProvider() as server:
        first = await hear(server, "chat", "ok", messages=[1])
        again = await hear(server, "chat", "ok", messages=[1])
        other = await hear(server, "chat", "ok", messages=[2])
        plain = await hear(server, "chat", "ok", messages=[1], stream=False)
    assert first.body == again.body
    assert first.body != other.body
    assert json.loads(plain.body)["id"] == first.events()[0]["id"]


async def test_a_scenario_can_be_made_of_values() -> None:
    own = Scenario("mine", REPLIES["tools"].reply, broken=Break("cut", Offset(25, per_cent=True)), write_bytes=3)
    async with FaultyProvider(script=["tools", own]) as server:
        whole = (await hear(server, "anthropic", "any")).body
        heard = await hear(server, "anthropic", "any")
    assert heard.body == whole[: len(whole) // 4]
    assert server.requests[1].scenario == "mine"


async def test_leaving_the_block_ends_every_connection() -> None:
    async with FaultyProvider() as server, connected(server) as (reader, writer):
        writer.write(encoded("chat", "stall@100"))
        await server.request()
        await server.close()
        assert server.open_connections == 0
        with suppress(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 10)


async def test_what_is_no_request_gets_a_clear_answer() -> None:
    async with FaultyProvider() as server:
        async with connected(server) as (reader, writer):
            writer.write(b"HELO there\r\n\r\n")
            assert b"not an HTTP/1.1 request" in await reader.read()
        async with connected(server) as (reader, writer):
            writer.write(b"GET /nowhere HTTP/1.1\r\nconnection: close\r\n\r\n")
            assert b"no route GET /nowhere" in await reader.read()
        async with connected(server) as (reader, writer):
            writer.write(b"POST /v1/messages HTTP/1.1\r\ncontent-length: 5\r\nconnection: close\r\n\r\n{nope")
            assert b"invalid_request_error" in await reader.read()


@pytest.mark.skipif(sys.platform == "win32", reason="uvloop does not exist there")
def test_every_break_works_on_uvloop_too() -> None:
    import uvloop

    async def main() -> None:
        async with FaultyProvider() as server:
            for model, ended, reset in (
                ("ok", True, False),
                ("cut@100", False, False),
                ("end@100", True, False),
                ("reset@100", False, True),
                ("ok+drip", True, False),
            ):
                heard = await hear(server, "chat", model)
                assert (heard.ended, heard.reset) == (ended, reset)
            async with connected(server) as (reader, writer):
                writer.write(encoded("chat", "half-close@10"))
                assert len(await reader.read()) > 10
                request = server.requests[-1]
                assert not request.over.is_set()
            await request.over.wait()
            assert request.disconnected_at is not None

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
