"""The HTTP provider over real sockets: what it sends, what it takes for an answer, and that it leaves nothing open."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from providers import faulty_calls
from providers.faulty_calls import ASK, DIALECTS, Bench, faulty
from tailrace.errors import ANSWER_TOO_LONG, ConfigError, PeerError, ProviderError, Rejected, StreamCut, Unavailable
from tailrace.messages import AnyDelta, Dialect, ModelRequest, user
from tailrace.providers.http import provider as http
from tailrace.providers.http import streamed_answer
from tailrace.providers.http.endpoint import Endpoint, is_local_host, url_of
from tailrace.providers.http.provider import HttpProvider
from tailrace.providers.http.streamed_answer import WIDE_BYTES, discard
from tailrace.providers.transport.http1_transport import Http1Transport, open_transport
from tailrace.providers.transport.port import Transport
from tailrace.testing.provider import Reply, Scenario
from tailrace.testing.scripted.reply import TextBlock

KEY = "sk-very-secret-key-0123456789"


class _Enough(Exception):
    """Ends the reading of an answer early."""


def _first_alone(_deltas: list[AnyDelta]) -> None:
    raise _Enough


async def drain(provider: HttpProvider, request: ModelRequest = ASK) -> int:
    """How many lists of deltas came."""
    async with provider.stream(request) as answer:
        reads: list[list[AnyDelta]] = []
        await answer.pump(reads.append)
        return len(reads)


# ── addresses and headers ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("base_url", "dialect", "url"),
    [
        ("https://api.openai.com/v1", "chat", "https://api.openai.com/v1/chat/completions"),
        ("https://api.openai.com", "responses", "https://api.openai.com/v1/responses"),
        ("http://127.0.0.1:8080/", "chat", "http://127.0.0.1:8080/v1/chat/completions"),
        ("https://openrouter.ai/api", "chat", "https://openrouter.ai/api/v1/chat/completions"),
        ("https://openrouter.ai/api/v1/", "chat", "https://openrouter.ai/api/v1/chat/completions"),
        ("https://host/v1beta/openai", "chat", "https://host/v1beta/openai/chat/completions"),
        ("https://api.anthropic.com", "anthropic", "https://api.anthropic.com/v1/messages"),
        ("https://api.anthropic.com/v1", "anthropic", "https://api.anthropic.com/v1/messages"),
        ("https://gateway/v1/account/anthropic", "anthropic", "https://gateway/v1/account/anthropic/v1/messages"),
        ("https://host/x/chat/completions?api-version=1", "chat", "https://host/x/chat/completions?api-version=1"),
    ],
)
def test_a_base_url_is_understood_with_and_without_its_version(base_url: str, dialect: Dialect, url: str) -> None:
    assert url_of(base_url, dialect) == url


@pytest.mark.parametrize("base_url", ["", "ftp://host/v1", "https://", "openrouter.ai/api/v1"])
def test_an_address_that_is_none_is_the_users_to_change(base_url: str) -> None:
    with pytest.raises(ConfigError, match="http:// or https://"):
        url_of(base_url, "chat")


@pytest.mark.parametrize(
    ("host", "local"),
    [
        *(("localhost", True), ("127.0.0.1", True), ("::1", True), ("192.168.1.9", True), ("nas.local", True)),
        *(("10.1.2.3", True), ("fd00::1", True), ("::ffff:192.168.1.9", True), ("::ffff:8.8.8.8", False)),
        *(("198.51.100.1", False), ("2002:808:808::1", False), ("64:ff9b::1", False)),
        *(("api.openai.com", False), ("8.8.8.8", False), ("localhost.evil.com", False)),
    ],
)
def test_who_is_local(host: str, local: bool) -> None:
    assert is_local_host(host) is local


@pytest.mark.parametrize(
    ("dialect", "credential"),
    [
        ("chat", ("authorization", f"Bearer {KEY}")),
        ("responses", ("authorization", f"Bearer {KEY}")),
        ("anthropic", ("x-api-key", KEY)),
    ],
)
async def test_what_is_sent(dialect: Dialect, credential: tuple[str, str]) -> None:
    """A22: identity encoding is asked for."""
    async with faulty("ok") as bench:
        await drain(bench.provider(dialect, key=f" {KEY}\n", headers={"X-Title": "t", "User-Agent": "mine"}))
        sent = bench.server.requests[0]
        assert sent.headers[credential[0]] == credential[1]
        assert sent.headers["accept-encoding"] == "identity"
        assert (sent.headers["x-title"], sent.headers["user-agent"]) == ("t", "mine")
        assert ("anthropic-version" in sent.headers) is (dialect == "anthropic")
        assert sent.json()["stream"] is True


async def test_a_large_request_is_sent_whole() -> None:
    text = "x" * (3 << 20)
    async with faulty("ok") as bench:
        await drain(bench.provider(), ModelRequest("ok", (user(text),)))
        assert bench.server.requests[0].json()["messages"][0]["content"] == text


async def test_a_header_that_cannot_be_sent_is_the_users_to_change() -> None:
    async with faulty() as bench:
        with pytest.raises(ConfigError, match="authorization") as caught:
            bench.provider(key="sk-two\nlines-of-key")
        assert "lines-of-key" not in str(caught.value)


# ── what counts as an answer ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_A19_a_page_with_status_200_is_a_typed_error_with_an_excerpt(dialect: Dialect) -> None:
    async with faulty("html", "html") as bench:
        provider = bench.provider(dialect)
        with pytest.raises(PeerError, match=r"text/html.*Just a moment") as caught:
            await drain(provider)
        assert caught.value.excerpt.startswith(b"<!DOCTYPE html>")
        with pytest.raises(PeerError, match="text/html"):
            await provider.complete(ASK)


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def on_a_socket(path: Path, handler: Handler) -> AsyncGenerator[str, None]:
    """A server of the test's own."""
    app = web.Application()
    app.router.add_post("/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.UnixSite(runner, str(path)).start()
        yield str(path)
    finally:
        await runner.cleanup()
        await asyncio.to_thread(path.unlink, missing_ok=True)


async def text_at(transport: Transport, socket_path: str, *, dialect: Dialect = "chat", key: str = "") -> str:
    endpoint = Endpoint(name="raw", dialect=dialect, base_url="http://raw", socket_path=socket_path, key=key)
    async with HttpProvider(endpoint, transport).stream(ASK) as answer:
        await answer.pump(discard)
        return answer.completion().text


async def ask_raw(tmp_path: Path, handler: Handler, *, dialect: Dialect = "chat", key: str = "") -> str:
    """The text of the answer by a server of the test's own, on a unix socket."""
    async with on_a_socket(tmp_path / "s", handler) as path, open_transport(faulty_calls.TRANSPORT) as transport:
        return await text_at(transport, path, dialect=dialect, key=key)


SSE_BODY = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


async def test_A15_a_body_that_ends_with_its_connection_has_no_end_of_its_own(tmp_path: Path) -> None:
    """No length and no last chunk: the end may be a cut, so an unfinished event is dropped."""
    bodies = [SSE_BODY, SSE_BODY[:-1]]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + bodies.pop(0))
        writer.close()
        await writer.wait_closed()

    path = str(tmp_path / "s")
    async with await asyncio.start_unix_server(answer, path), open_transport(faulty_calls.TRANSPORT) as transport:
        assert await text_at(transport, path) == "Hi"
        with pytest.raises(StreamCut):
            await text_at(transport, path)


def _idle_sockets(transport: Transport) -> list[str]:
    assert isinstance(transport, Http1Transport)
    return [destination.socket_path for destination in transport._idle]


async def test_F70_a_server_that_comes_back_under_other_names_leaves_nothing_behind(tmp_path: Path) -> None:
    """The embedded model's server has a new socket at each start."""

    async def handler(_request: web.Request) -> web.Response:
        return web.Response(body=SSE_BODY, headers={"content-type": "text/event-stream"})

    async with open_transport(faulty_calls.TRANSPORT) as transport:
        for name in "abc":
            async with on_a_socket(tmp_path / name, handler) as path:
                assert await text_at(transport, path) == "Hi"
                assert _idle_sockets(transport) == [path]


@pytest.mark.parametrize("content_type", ["text/plain", "application/octet-stream", "TEXT/EVENT-STREAM; charset=x"])
async def test_A13_a_stream_under_another_name_is_known_by_its_first_line(tmp_path: Path, content_type: str) -> None:
    async def handler(_request: web.Request) -> web.Response:
        return web.Response(body=SSE_BODY, headers={"content-type": content_type})

    assert await ask_raw(tmp_path, handler) == "Hi"


@pytest.mark.parametrize(
    ("body", "content_type", "message"),
    [
        (b"Bad day", "text/plain", "text/plain: Bad day"),
        (b'{"ok": true}', "application/json", "not an answer in the chat dialect"),
        (b'{"choices": [', "application/json", "expected an answer in JSON"),
        (b"[]", "application/json", "expected an answer in JSON"),
        (b"", "application/json", "expected an answer in JSON"),
    ],
)
async def test_A19_what_is_no_answer_is_a_peer_error(
    tmp_path: Path, body: bytes, content_type: str, message: str
) -> None:
    async def handler(_request: web.Request) -> web.Response:
        return web.Response(body=body, content_type=content_type)

    with pytest.raises(PeerError, match=message) as caught:
        await ask_raw(tmp_path, handler)
    assert caught.value.provider == "raw"


async def test_A19_an_error_with_status_200_is_that_error(tmp_path: Path) -> None:
    async def handler(_request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "no such model", "code": "model_not_found"}})

    with pytest.raises(Rejected, match="no such model") as caught:
        await ask_raw(tmp_path, handler)
    assert caught.value.status == 404


async def test_D56_a_failed_response_in_json_is_no_success(tmp_path: Path) -> None:
    async def handler(_request: web.Request) -> web.Response:
        return web.json_response({"status": "failed", "error": None, "output": []})

    with pytest.raises(Unavailable, match="ended the response as failed"):
        await ask_raw(tmp_path, handler, dialect="responses")


async def test_an_answer_past_the_cap_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """J126."""
    monkeypatch.setattr(http, "MAX_BODY_BYTES", 1000)

    async def handler(_request: web.Request) -> web.Response:
        return web.json_response({"choices": [], "padding": "x" * 2000})

    with pytest.raises(PeerError, match="exceeds 1000 bytes"):
        await ask_raw(tmp_path, handler)


async def test_a_stream_past_the_cap_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """J126: deadlines alone would let a quick peer fill the memory."""
    monkeypatch.setattr(streamed_answer, "MAX_STREAM_BYTES", 5000)
    async with faulty("long") as bench:
        with pytest.raises(PeerError, match="the stream exceeds 5000 bytes"):
            await drain(bench.provider())


async def test_O178_an_answer_that_is_too_long_ends_with_what_came() -> None:
    """Framing does not count: the stream is many times as long as the answer."""
    async with faulty("long", "long", "long", "long") as bench:
        whole = (await bench.provider().complete(ASK)).text
        request = msgspec.structs.replace(ASK, max_answer_bytes=len(whole) // 2)
        async with bench.provider().stream(request) as answer:
            with pytest.raises(PeerError, match=f"the answer exceeds {len(whole) // 2} bytes") as caught:
                await answer.pump(lambda _: None)
        assert caught.value.code == ANSWER_TOO_LONG
        assert len(answer.completion().text) >= len(whole) // 2 - 100  # about: a message is more than its text
        with pytest.raises(PeerError, match="the answer exceeds"):
            await bench.provider().complete(request)
        enough = msgspec.structs.replace(ASK, max_answer_bytes=len(whole) + 100)
        assert (await bench.provider().complete(enough)).text == whole


@pytest.mark.parametrize(("wide", "char_bytes"), [("<", 1), ("é", WIDE_BYTES), ("😀", WIDE_BYTES)])
@pytest.mark.parametrize("place", [0, 0.9])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_O178_one_wide_character_makes_an_answer_long(
    dialect: Dialect, place: float, wide: str, char_bytes: int
) -> None:
    """It would make every other one of its text as wide: the answer ends before it."""
    at = int(10 * place)
    pieces = ["x" * 400] * 10
    pieces[at] += wide
    text = "".join(pieces)
    paced = Scenario(reply=Reply((TextBlock(tuple(pieces)),)), pace_s=0.001)  # each piece is read by itself
    async with faulty(*[paced] * 4) as bench:
        for max_bytes in (4100 * char_bytes, 2000 * char_bytes):
            is_long = max_bytes < len(text) * char_bytes
            refused = pytest.raises(PeerError, match=f"exceeds {max_bytes} bytes") if is_long else nullcontext()
            request = msgspec.structs.replace(ASK, max_answer_bytes=max_bytes)
            async with bench.provider(dialect).stream(request) as answer:
                with refused:
                    await answer.pump(lambda _: None)
                came = answer.completion().text
            assert text.startswith(came)
            assert (came == text) is not is_long
            assert not is_long or came.isascii() or at == 0
            with refused:
                assert (await bench.provider(dialect).complete(request)).text == text


async def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    """J115: the key goes nowhere that the user did not name."""

    async def handler(_request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"location": "https://elsewhere.example/v1"})

    with pytest.raises(Rejected, match=r"redirects to https://elsewhere\.example/v1"):
        await ask_raw(tmp_path, handler, key=KEY)


@asynccontextmanager
async def always_refusing(tmp_path: Path, field: str, dialect: Dialect) -> AsyncGenerator[HttpProvider, None]:
    """A provider that names the field in its refusal whether it is there or not, four times."""
    sent = 0

    async def handler(_request: web.Request) -> web.Response:
        nonlocal sent
        sent += 1
        said = f"{field} is not supported" if sent < 5 else f"asked {sent} times"
        return web.json_response({"error": {"message": f"request {sent}: {said}"}}, status=400)

    async with on_a_socket(tmp_path / "s", handler) as path, open_transport(faulty_calls.TRANSPORT) as transport:
        yield HttpProvider(Endpoint(name="raw", dialect=dialect, base_url="http://raw", socket_path=path), transport)


async def test_a_field_that_is_refused_though_it_was_left_out_is_not_left_out_again(tmp_path: Path) -> None:
    async with always_refusing(tmp_path, "cache_control", "anthropic") as provider:
        with pytest.raises(Rejected, match="request 2: cache_control is not supported"):
            await drain(provider, msgspec.structs.replace(ASK, cache_prompt=True))


async def test_A22_a_body_that_is_not_in_its_encoding_is_a_peer_error(tmp_path: Path) -> None:
    async def handler(_request: web.Request) -> web.Response:
        return web.Response(body=SSE_BODY, headers={"content-type": "text/event-stream", "content-encoding": "gzip"})

    with pytest.raises(PeerError, match="encoding"):
        await ask_raw(tmp_path, handler)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_A22_a_compressed_stream_is_decoded_as_it_comes(dialect: Dialect) -> None:
    async with faulty("ok+gzip+stall@60%") as bench, bench.provider(dialect).stream(ASK) as answer:
        seen = 0

        def take(deltas: list[AnyDelta]) -> None:
            nonlocal seen
            seen += len(deltas)
            if seen >= 3:
                raise _Enough  # the rest never comes: what was decoded came out of an unfinished gzip stream

        with pytest.raises(_Enough):
            await answer.pump(take)


async def test_A20_an_endless_line_ends_in_an_error() -> None:
    async with faulty("endless-line") as bench:
        with pytest.raises(ProviderError, match="exceeds"):
            await drain(bench.provider())


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_A14_two_objects_in_one_event_are_an_error(dialect: Dialect) -> None:
    async with faulty("ok+glued") as bench:
        with pytest.raises(ProviderError):
            await drain(bench.provider(dialect))


# ── secrets ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_J114_a_key_that_the_peer_echoes_is_not_shown(tmp_path: Path) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": f"bad key {request.headers['authorization']}"}}, status=401)

    async def echo(request: web.Request) -> web.Response:
        return web.Response(text=f"<html>{request.headers['authorization']}", content_type="text/html")

    async def stream(request: web.Request) -> web.Response:
        event = msgspec.json.encode({"error": {"message": f"bad key {request.headers['authorization']}"}})
        return web.Response(body=b"data: %b\n\n" % event, content_type="text/event-stream")

    async def broken(request: web.Request) -> web.Response:
        return web.Response(text=f"{'{'}{request.headers['authorization']}", content_type="application/json")

    async def other(request: web.Request) -> web.Response:
        return web.json_response({"padding": "x" * 160, "you_sent": request.headers["authorization"]})

    for handler in (refuse, echo, stream, broken, other):
        with pytest.raises(ProviderError) as caught:
            await ask_raw(tmp_path, handler, key=KEY)
        shown = "".join(traceback.format_exception(caught.value)) + repr(vars(caught.value))
        assert KEY[:12] not in shown
        (tmp_path / "s").unlink(missing_ok=True)


def test_J114_no_repr_shows_a_secret() -> None:
    endpoint = Endpoint(
        name="x", dialect="chat", base_url=f"https://user:{KEY}@host/v1", key=KEY, headers={"cookie": KEY}
    )
    assert KEY not in repr(endpoint)


# ── connections ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_connections_are_reused() -> None:
    async with faulty() as bench:
        provider = bench.provider()
        for _ in range(5):
            await drain(provider)
            await provider.complete(ASK)
        assert bench.server.connections == 1


async def test_E67_a_dead_pooled_connection_is_retried_once() -> None:
    async with faulty("ok", "drop", "ok") as bench:
        provider = bench.provider()
        await drain(provider)
        assert await drain(provider) > 0
        assert [request.scenario for request in bench.server.requests] == ["ok", "drop", "ok"]


async def test_E67_but_not_a_fresh_one() -> None:
    async with faulty("drop", "ok") as bench:
        with pytest.raises(Unavailable, match="closed before an answer"):
            await drain(bench.provider())
        assert len(bench.server.requests) == 1


async def test_E67_and_not_after_a_byte_came() -> None:
    async with faulty("ok", "cut@0", "ok") as bench:
        provider = bench.provider()
        await drain(provider)
        with pytest.raises(StreamCut):
            await drain(provider)
        assert len(bench.server.requests) == 2


async def test_nobody_listens() -> None:
    async with faulty() as bench:
        provider = bench.provider(base_url="http://127.0.0.1:9")
        with pytest.raises(Unavailable, match=r"cannot connect to 127\.0\.0\.1"):
            await drain(provider)


async def left_by(bench: Bench, leave: Callable[[], Awaitable[None]]) -> None:
    await leave()
    request = bench.server.requests[-1]
    await asyncio.wait_for(request.over.wait(), 30)
    assert request.disconnected_at is not None


@pytest.mark.parametrize("scenario", ["status-500+stall@3", "ok+stall@50%", "html+stall@10"])
async def test_F70_whatever_is_abandoned_is_closed(scenario: str) -> None:
    async with faulty(scenario) as bench:
        provider = bench.provider()

        async def leave() -> None:
            task = asyncio.create_task(drain(provider))
            await bench.server.request()
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        await left_by(bench, leave)


async def test_F76_leaving_the_block_early_closes_the_connection() -> None:
    async with faulty("long+stall@50%") as bench:
        provider = bench.provider()

        async def leave() -> None:
            async with provider.stream(ASK) as answer:
                with pytest.raises(_Enough):
                    await answer.pump(_first_alone)

        await left_by(bench, leave)


async def test_a_server_that_keeps_the_connection_open_does_not_keep_us() -> None:
    """The terminal event is the end; the body's own end is waited for only a moment."""
    async with faulty("ok+pings@100%") as bench:
        async with asyncio.timeout(30):
            assert await drain(bench.provider()) > 0
        await asyncio.wait_for(bench.server.requests[0].over.wait(), 30)
