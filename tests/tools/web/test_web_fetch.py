"""web_fetch over real sockets: what is shown, what is refused, and that no hop reaches what is not public (J116).

A fake resolver says where names lead; a pinned socket proves where the connection really went.
"""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from tailrace.ports import Effect, ToolOutcome
from tailrace.tools.web import page_fetch, web_fetch
from tailrace.tools.web.page_fetch import decoded
from tailrace.tools.web.web_fetch import WebFetch
from tools.tool_context import Workplace

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Names:
    """A name server that can be told to change its mind."""

    def __init__(self, **names: list[str]) -> None:
        self.names = {name.replace("_", "."): addresses for name, addresses in names.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if host not in self.names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.names[host]


@asynccontextmanager
async def served(handler: Handler) -> AsyncIterator[int]:
    """A server on loopback; its port."""
    runner = web.ServerRunner(web.Server(handler))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@asynccontextmanager
async def raw_server(answer: bytes) -> AsyncIterator[int]:
    """Answers every request with these bytes."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(handler, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


def answering(body: str | bytes, content_type: str = "text/html", **kwargs: Any) -> Handler:
    async def handler(_: web.BaseRequest) -> web.StreamResponse:
        response = web.Response(body=body.encode() if isinstance(body, str) else body, **kwargs)
        response.headers["Content-Type"] = content_type
        return response

    return handler


async def fetch(here: Workplace, url: str, tool: WebFetch | None = None, **args: Any) -> ToolOutcome:
    tool = tool or WebFetch(allow_hosts=["127.0.0.1"])
    return await tool.run({"url": url, **args}, here)


# ── what is shown ────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_page_as_text_with_its_title(here: Workplace) -> None:
    page = "<title>T</title><h1>Hi</h1><p>See <a href='/more'>more</a></p>"
    async with served(answering(page)) as port:
        base = f"http://127.0.0.1:{port}"
        outcome = await fetch(here, f"{base}/a?b=c#d")
    assert outcome == ToolOutcome(f"{base}/a?b=c\nTitle: T\n\n# Hi\n\nSee [more]({base}/more)")
    assert here.reports == [f"fetching {base}/a?b=c#d"]


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/json", "application/ld+json", "text/markdown; charset=utf-8", "image/svg+xml"]
)
async def test_text_and_json_as_they_are(here: Workplace, kind: str) -> None:
    async with served(answering('{"a": "<b>ü"}', kind)) as port:
        outcome = await fetch(here, f"http://127.0.0.1:{port}/")
    assert outcome.ok == (not kind.startswith("image"))
    assert ('{"a": "<b>ü"}' in outcome.output) == outcome.ok


@pytest.mark.parametrize("kind", ["image/png", "application/pdf", "application/octet-stream", "audio/mpeg"])
async def test_other_kinds_are_refused_by_name(here: Workplace, kind: str) -> None:
    async with served(answering(b"\x89PNG", kind)) as port:
        url = f"http://127.0.0.1:{port}/"
        assert await fetch(here, url) == ToolOutcome(f"{url} is {kind}, which cannot be shown as text", ok=False)


async def test_no_content_type_is_plain_text(here: Workplace) -> None:
    async with raw_server(b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n<p>as it is") as port:
        assert (await fetch(here, f"http://127.0.0.1:{port}/")).output.endswith("\n\n<p>as it is")


async def test_an_error_page_is_a_failure_that_can_be_read(here: Workplace) -> None:
    async with served(answering("<p>gone fishing", status=404)) as port:
        url = f"http://127.0.0.1:{port}/x"
        assert await fetch(here, url) == ToolOutcome(f"{url}: HTTP 404 Not Found\n\ngone fishing", ok=False)


async def test_a_long_text_in_parts(here: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_fetch, "MAX_CHARS", 10)
    async with served(answering("0123456789abcde", "text/plain")) as port:
        url = f"http://127.0.0.1:{port}/"
        assert (await fetch(here, url)).output == f"{url}\n\n0123456789\n… 5 more characters; go on with offset=10"
        assert (await fetch(here, url, offset=10)).output == f"{url}\n\nabcde"
        assert (await fetch(here, url, offset=99)).output == f"{url}\n\n(the text ends at 15 characters)"


@pytest.mark.parametrize(
    ("data", "charset", "html", "expected"),
    [
        ("grüße".encode(), None, False, "grüße"),
        ("grüße".encode("latin-1"), None, False, "grüße"),
        ("grüße".encode("latin-1"), "iso-8859-1", False, "grüße"),
        (b"\x80uro", "iso-8859-1", False, "€uro"),
        (b"\x80uro", "us-ascii", False, "€uro"),
        ("日本".encode("shift_jis"), "Shift_JIS", False, "日本"),
        ('<meta charset="koi8-r">мир'.encode("koi8-r"), None, True, '<meta charset="koi8-r">мир'),
        ("grüße".encode("utf-16"), "utf-8", False, "grüße"),
        ("﻿grüße".encode(), "latin-1", False, "grüße"),
        (b"a\xff", "utf-8", False, "a\ufffd"),
        ("é".encode() + b"\xc3", None, False, "é"),
        (b"+AGE-", "utf-7", False, "+AGE-"),
        (b"x", "zlib", False, "x"),
        (b"x", "no-such-charset", False, "x"),
    ],
)
def test_A13_charsets(data: bytes, charset: str | None, html: bool, expected: str) -> None:
    assert decoded(data, charset, html=html) == expected


def test_what_it_says_of_itself() -> None:
    tool = WebFetch()
    assert (tool.repeatable, tool.parallel, tool.effect({"url": "x"})) == (True, True, Effect())


# ── limits ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_endless_page_is_read_up_to_the_limit(here: Workplace) -> None:
    ended = asyncio.Event()

    async def endless(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 10_000)
        finally:
            ended.set()

    async with served(endless) as port:
        tool = WebFetch(allow_hosts=["127.0.0.1"], max_bytes=30_000)
        outcome = await fetch(here, f"http://127.0.0.1:{port}/", tool)
        await ended.wait()  # the connection is closed, so that the server can stop
    assert outcome.output.endswith("x\n… the page is longer than what was read of it")
    assert outcome.output.count("x") == 30_000


async def test_what_was_packed_counts_by_what_it_unpacks_to(here: Workplace) -> None:
    packed = gzip.compress(b"y" * 50_000_000)
    async with served(answering(packed, "text/plain", headers={"Content-Encoding": "gzip"})) as port:
        tool = WebFetch(allow_hosts=["127.0.0.1"], max_bytes=1000)
        outcome = await fetch(here, f"http://127.0.0.1:{port}/", tool)
    assert outcome.output.count("y") <= 1000


@pytest.mark.parametrize("when", ["headers", "body"])
async def test_a_silent_server_is_given_up(here: Workplace, when: str) -> None:
    release = asyncio.Event()

    async def silent(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        if when == "body":
            await response.prepare(request)
        await release.wait()
        return response

    async with served(silent) as port:
        url = f"http://127.0.0.1:{port}/"
        tool = WebFetch(allow_hosts=["127.0.0.1"], timeout_s=0.2)
        assert await fetch(here, url, tool) == ToolOutcome(f"{url} took longer than 0.2 s", ok=False)
        release.set()


async def test_F70_cancelling_closes_the_connection(here: Workplace) -> None:
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await reader.read()  # until the other side closes
        gone.set()
        writer.close()

    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        running = asyncio.ensure_future(fetch(here, f"http://127.0.0.1:{port}/"))
        await arrived.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await gone.wait()


async def test_a_server_that_talks_nonsense_or_nothing_is_an_outcome(here: Workplace) -> None:
    async with raw_server(b"SSH-2.0-OpenSSH\r\n\r\n") as port:
        outcome = await fetch(here, f"http://127.0.0.1:{port}/")
    assert not outcome.ok
    closed = await fetch(here, f"http://127.0.0.1:{port}/")
    assert "cannot be fetched" in closed.output


# ── J116 ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever reaches the network fails the test."""

    async def connect(*_: object, **__: object) -> None:
        raise AssertionError("something was connected to")

    monkeypatch.setattr("aiohappyeyeballs.start_connection", connect)


@pytest.mark.usefixtures("no_connection")
@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "[::1]", "0.0.0.0", "10.1.2.3", "169.254.169.254", "[::ffff:127.0.0.1]", "[::ffff:a9fe:a9fe]"),
        *("[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[fe80::1]", "[fd00:ec2::254]", "168.63.129.16", "192.168.0.1"),
    ],
)
async def test_J116_addresses_that_are_not_public_are_refused(here: Workplace, host: str) -> None:
    outcome = await fetch(here, f"http://{host}/", WebFetch())
    assert (outcome.ok, "is not on the public Internet" in outcome.output) == (False, True)


@pytest.mark.usefixtures("no_connection")
@pytest.mark.parametrize("host", ["localhost", "127.1", "2130706433", "0x7f.1", "0177.0.0.1"])
async def test_J116_spellings_of_loopback_that_the_system_understands(here: Workplace, host: str) -> None:
    """Resolved by the system itself; what it cannot resolve is refused too."""
    outcome = await fetch(here, f"http://{host}/", WebFetch())
    assert not outcome.ok
    assert "is not on the public Internet" in outcome.output or "cannot be resolved" in outcome.output


@pytest.mark.usefixtures("no_connection")
@pytest.mark.parametrize(
    "addresses", [["127.0.0.1"], ["8.8.8.8", "10.0.0.1"], ["2606:4700::1", "::1"], ["fe80::1%lo"], ["nonsense"], []]
)
async def test_J116_one_address_condemns_the_name(here: Workplace, addresses: list[str]) -> None:
    names = Names(evil_example=addresses)
    outcome = await fetch(here, "http://evil.example/", WebFetch(resolve=names))
    assert not outcome.ok
    assert "evil.example" in outcome.output
    assert names.asked == ["evil.example"]


@pytest.mark.parametrize("target", ["http://127.0.0.1:{port}/secret", "//127.0.0.1:{port}/x", "http://inside.example/"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_J116_a_redirect_is_checked_like_the_first_address(here: Workplace, target: str, status: int) -> None:
    requests: list[str] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        requests.append(request.path)
        location = target.format(port=request.url.port)
        return web.Response(status=status, headers={"Location": location})

    names = Names(front_example=["127.0.0.1"], inside_example=["10.0.0.1"])
    async with served(handler) as port:
        tool = WebFetch(resolve=names, allow_hosts=["front.example"])
        outcome = await fetch(here, f"http://front.example:{port}/", tool)
    assert (outcome.ok, "is not on the public Internet" in outcome.output) == (False, True)
    assert requests == ["/"]


async def test_J116_a_name_that_changes_after_the_check_changes_nothing(here: Workplace) -> None:
    """Rebinding: checked while public, private for whoever asks again. Nobody asks again."""
    connected: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        connected.append(host)
        return ["93.184.216.34"] if len(connected) == 1 else ["127.0.0.1"]

    tool = WebFetch(resolve=resolve)
    targets: list[Any] = []

    def refuse(self: asyncio.AbstractEventLoop, sock: socket.socket, address: Any) -> None:
        targets.append(address)
        raise OSError(101, "Network is unreachable")

    loop = asyncio.get_running_loop()
    original = loop.sock_connect
    loop.sock_connect = lambda sock, address: refuse(loop, sock, address)  # type: ignore[method-assign, assignment, return-value]
    try:
        outcome = await fetch(here, "http://rebind.example:8080/", tool)
    finally:
        loop.sock_connect = original  # type: ignore[method-assign]
    assert not outcome.ok
    assert connected == ["rebind.example"]
    assert targets == [("93.184.216.34", 8080)]


def test_J116_the_gate_makes_no_socket_for_what_was_not_checked() -> None:
    gate = page_fetch._gate(["93.184.216.34", "2606:4700::1"])
    with pytest.raises(PermissionError):
        gate((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80)))
    gate((socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2606:4700:0::1", 80, 0, 0))).close()


async def test_redirects_are_followed_and_counted(here: Workplace) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        if request.path.startswith("/loop"):
            return web.Response(status=302, headers={"Location": f"{request.path}x"})
        if request.path == "/dir/start":
            return web.Response(status=301, headers={"Location": "../end?q=1"})
        return web.Response(text=f"at {request.path_qs}")

    async with served(handler) as port:
        base = f"http://127.0.0.1:{port}"
        assert (await fetch(here, f"{base}/dir/start")).output == f"{base}/end?q=1\n\nat /end?q=1"
        endless = await fetch(here, f"{base}/loop")
    assert endless == ToolOutcome(f"{base}/loop redirects more than 5 times", ok=False)


@pytest.mark.usefixtures("no_connection")
@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("file:///etc/passwd", "only http:// and https://"),
        ("ftp://a.example/", "only http:// and https://"),
        ("gopher://a.example/", "only http:// and https://"),
        ("/etc/passwd", "only http:// and https://"),
        ("a.example", "only http:// and https://"),
        ("http://", "names no host"),
        ("http://user:pass@a.example/", "user name or a password"),
        ("http://a.example:22/", "port 22 is not one of the web"),
        ("http://a.example:6379/", "port 6379 is not one of the web"),
        ("http://a.example:99999/", "not an address"),
        ("http://[::1/", "not an address"),
        ("http://none.example/", "none.example cannot be resolved"),
    ],
)
async def test_addresses_that_are_not_fetched(here: Workplace, url: str, why: str) -> None:
    outcome = await fetch(here, url, WebFetch(resolve=Names(a_example=["93.184.216.34"])))
    assert not outcome.ok
    assert why in outcome.output


async def test_a_redirect_to_another_scheme_is_refused(here: Workplace) -> None:
    async with served(answering("", status=302, headers={"Location": "file:///etc/passwd"})) as port:
        outcome = await fetch(here, f"http://127.0.0.1:{port}/")
    assert "only http:// and https://" in outcome.output


async def test_nothing_of_ours_is_sent_along(here: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy of the environment, no cookies, no credentials; the name is the one that was asked for."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9/")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9/")
    seen: list[dict[str, str]] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(dict(request.headers))
        response = web.Response(text="ok") if len(seen) > 1 else web.Response(status=302, headers={"Location": "/b"})
        response.set_cookie("a", "b")
        return response

    async with served(handler) as port:
        tool = WebFetch(allow_hosts=["Self.Example"], resolve=Names(self_example=["127.0.0.1"]))
        assert (await fetch(here, f"http://self.example:{port}/a", tool)).ok
    assert [headers["Host"] for headers in seen] == [f"self.example:{port}"] * 2
    assert all(set(headers) == {"Host", "User-Agent", "Accept", "Accept-Encoding", "Connection"} for headers in seen)
