"""J113, J114: a thousand keys, cut at every position, are in nothing that is shown or stored.

First the redactor alone, at each cut. Then a real `tailrace serve` whose provider sends back the key that it was sent,
a character at a time, in every place where an answer or an error has text.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from aiohttp import web

from attacks.secret_corpus import CORPUS_SIZE, FORMS, secret_corpus
from tailrace.agent.safety.redact import REDACTED, Redactor
from tailrace.app.telemetry.logging_setup import configure
from tailrace.values.redact import without_secrets

CORPUS = secret_corpus()

# ── the redactor ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_corpus_has_each_form_and_no_key_twice() -> None:
    assert len(set(CORPUS)) == CORPUS_SIZE
    assert CORPUS_SIZE // len(FORMS) > 40


def test_J113_no_cut_lets_a_key_through() -> None:
    for key in CORPUS:
        redactor = Redactor([key])
        for cut in range(1, len(key)):
            stream = redactor.stream()
            shown = [stream.feed(f"key {key[:cut]}"), stream.feed(f"{key[cut:]}."), stream.close()]
            assert "".join(shown) == f"key {REDACTED}.", (key, cut)


def test_J113_a_key_that_comes_a_character_at_a_time_among_all_others() -> None:
    """One redactor knows them all, as in a process with many secrets."""
    redactor = Redactor(CORPUS)
    for key in CORPUS[:: CORPUS_SIZE // 7]:
        stream = redactor.stream()
        assert "".join([*map(stream.feed, key), stream.close()]) == REDACTED
    assert redactor.redact(" ".join(CORPUS)) == " ".join([REDACTED] * CORPUS_SIZE)


def test_J113_no_cut_in_the_arguments_of_a_call_lets_a_key_through() -> None:
    """In JSON text, where a character may be written as an escape: each form, ten of it."""
    for key in CORPUS[: 10 * len(FORMS)]:
        redactor = Redactor([key])
        for written in {json.dumps(key), json.dumps(key, ensure_ascii=False).replace("/", r"\/")}:
            for cut in range(1, len(written), 1 + len(written) // 60):
                assert _arguments(redactor, written[:cut], written[cut:]) == f'"{REDACTED}"', (key, cut)


def _arguments(redactor: Redactor, *pieces: str) -> str:
    from tailrace.agent.safety.redact import ArgumentsStream

    stream = ArgumentsStream(redactor)
    return "".join([*map(stream.feed, pieces), stream.close()])


@pytest.mark.parametrize("form", ["text", "json"])
def test_J114_no_line_of_the_log_has_a_key(form: Any) -> None:
    """In its message, in its fields and in a traceback, also where these are quoted."""
    redactor, out = Redactor(CORPUS), io.StringIO()
    configure(redactor, form=form, stream=out)
    log = logging.getLogger("tailrace.attacks")
    for key in CORPUS:
        log.warning("refused %s and %r", key, {"key": key})
    for key in CORPUS[: 4 * len(FORMS)]:
        try:
            raise ValueError(key)  # noqa: TRY301 - for its traceback
        except ValueError:
            log.exception("address https://host/bot%s/getMe", quote(key, safe=""), extra={"route": f"/{key}"})
    assert out.getvalue().count(REDACTED) >= 2 * CORPUS_SIZE
    assert found_in(out.getvalue(), CORPUS) == []


def test_J114_no_error_quotes_a_key() -> None:
    for key in CORPUS:
        assert found_in(without_secrets(f"{key} {key!r} {json.dumps(key)} {quote(key)}", [key]), [key]) == []


def found_in(text: str, keys: list[str]) -> list[str]:
    """The keys that the text shows, however it writes them; half a key counts too."""
    return [key for key in keys for shown in {key[: len(key) * 2 // 3], *_written(key)} if shown in text]


def _written(key: str) -> Iterator[str]:
    yield from (key, repr(key)[1:-1], escape(key), quote(key), quote(key, safe=""))
    yield from (json.dumps(key)[1:-1], json.dumps(key, ensure_ascii=False)[1:-1])


# ── a server whose provider sends the key back ───────────────────────────────────────────────────────────────

KEYS = [key.strip() for key in secret_corpus(2 * len(FORMS)) if key.isascii()]  # a header carries no other
CONFIG = """
model: {{provider: p0, name: text}}
providers: {{{providers}}}
store: {{url: 'sqlite:///runs.db'}}
approvals: {{mode: deny}}
server: {{drain_s: 0.2}}
"""


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "c", "choices": [choice]}).encode() + b"\n\n"


def _call(arguments: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "read_file", "arguments": arguments}}]}


DELTAS: dict[str, Callable[[str], dict[str, Any]]] = {
    "text": lambda piece: {"content": piece},
    "reasoning": lambda piece: {"reasoning_content": piece},
    "arguments": _call,
}
ERRORS: dict[str, Callable[[str], web.Response]] = {
    "refusal": lambda key: web.json_response({"error": {"message": f"bad key {key}"}}, status=401),
    "busy": lambda key: web.json_response({"error": {"message": f"{key} is over its limit"}}, status=429),
    "page": lambda key: web.Response(text=f"<html>{key}", content_type="text/html"),
    "garbage": lambda key: web.Response(text="{" + key, content_type="application/json"),
    "broken": lambda key: web.Response(body=f"data: {{{key}\n\n".encode(), content_type="text/event-stream"),
}


async def echo(request: web.Request) -> web.StreamResponse:
    """Sends the caller's key back, in the way that the model's name says."""
    key = request.headers["Authorization"].removeprefix("Bearer ")
    asked = await request.json()
    way = asked["model"]
    if way in ERRORS:
        return ERRORS[way](key)
    if asked["messages"][-1]["role"] == "tool":
        way = "text"
    text = json.dumps({"path": key}) if way == "arguments" else f"It is {key}, is it not?"
    if not asked.get("stream"):
        field = {"reasoning": "reasoning_content"}.get(way, "content")
        message = _call(text) if way == "arguments" else {field: text}
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
        return web.json_response({"id": "c", "choices": [choice]})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    ends = _chunk({}, "tool_calls" if way == "arguments" else "stop") + b"data: [DONE]\n\n"
    await response.write(b"".join(_chunk(DELTAS[way](piece)) for piece in text) + ends)
    return response


@asynccontextmanager
async def echoing_provider() -> AsyncGenerator[str, None]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", echo)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


Ask = Callable[[str, str, Any], Awaitable[str]]


@asynccontextmanager
async def served(home: Path, log: Path) -> AsyncGenerator[Ask, None]:
    """`tailrace serve` with a provider for each key; `ask(method, path, body)` gives the answer's text."""
    environment = {**os.environ, "TAILRACE_HOME": str(home)}
    environment |= {f"SECRET_{number}": key for number, key in enumerate(KEYS)}
    async with echoing_provider() as url, aiohttp.ClientSession() as client:
        one = "p{0}: {{dialect: chat, base_url: '{1}', key_env: SECRET_{0}, max_attempts: 1}}"
        providers = ", ".join(one.format(number, url) for number in range(len(KEYS)))
        (home / "config.yaml").write_text(CONFIG.format(providers=providers), encoding="utf-8")
        command = [sys.executable, "-m", "tailrace", "serve", "--port", "0", "--log", "json"]
        with log.open("wb") as stderr:
            child = await asyncio.create_subprocess_exec(
                *command, env=environment, cwd=home, stdout=asyncio.subprocess.PIPE, stderr=stderr, umask=0
            )
        assert child.stdout is not None
        try:
            base = (await child.stdout.readline()).decode().split()[-1]

            async def ask(method: str, path: str, body: Any = None) -> str:
                async with client.request(method, base + path, json=body) as response:
                    return await response.text()

            yield ask
        finally:
            child.terminate()
            await child.wait()


async def tailrace(home: Path, *args: str) -> str:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tailrace", *args),
        env={**os.environ, "TAILRACE_HOME": str(home)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        umask=0,
    )
    out, _ = await child.communicate()
    assert child.returncode == 0, out.decode()
    return out.decode()


def open_to_others(directory: Path, *, but: set[str]) -> dict[str, str]:
    """What other users of the machine may read or write of all that was written, although the umask forbids nothing."""
    modes = {path: path.stat().st_mode for path in directory.rglob("*") if path.name not in but}
    return {str(path.relative_to(directory)): oct(mode) for path, mode in modes.items() if mode & 0o077}


def files_below(directory: Path) -> dict[str, str]:
    """All that was written: the journal with its write-ahead log, its copy, the exported page, the server's log."""
    kept = [path for path in directory.rglob("*") if path.is_file() and path.name != "config.yaml"]
    return {path.name: path.read_bytes().decode("utf-8", "replace") for path in kept}


async def test_J114_a_key_that_the_provider_sends_back_is_in_nothing_that_is_shown_or_kept(tmp_path: Path) -> None:
    home, log = tmp_path / "home", tmp_path / "server.log"
    home.mkdir()
    ways = [*DELTAS, *ERRORS]
    shown: dict[str, str] = {}
    async with served(home, log) as ask:
        for number in range(len(KEYS)):
            way = ways[number % len(ways)]
            body = {"model": f"p{number}/{way}", "messages": [{"role": "user", "content": "Which key?"}]}
            for stream in (True, False):
                shown[f"/v1, {way}, {stream=}, {number}"] = await ask(
                    "POST", "/v1/chat/completions", {**body, "stream": stream}
                )
        for number, way in enumerate(DELTAS):
            run = json.loads(await ask("POST", "/runs", {"input": f"Is it {KEYS[-1]}?", "model": f"p{number}/{way}"}))
            shown[f"/runs, {way}"] = await ask("GET", f"/runs/{run['id']}/stream", None)
            shown[f"/runs, {way}, inspected"] = await ask("GET", f"/runs/{run['id']}/timeline", None)
        shown["/runs"] = await ask("GET", "/runs", None)
        shown["/metrics"] = await ask("GET", "/metrics", None)
        shown["/readyz"] = await ask("GET", "/readyz", None)
    for command in (("backup", str(tmp_path / "copy.db")), ("show", run["id"], "--html", str(tmp_path / "run.html"))):
        shown[command[0]] = await tailrace(home, *command)
    shown["show"] = await tailrace(home, "show", run["id"])
    shown |= await asyncio.to_thread(files_below, tmp_path)
    assert {"runs.db", "copy.db", "run.html", "server.log"} <= shown.keys()
    assert await asyncio.to_thread(open_to_others, tmp_path, but={"config.yaml", "server.log"}) == {}
    assert REDACTED in shown["runs.db"]
    assert REDACTED in shown["copy.db"]
    assert REDACTED in shown["run.html"]
    assert sum(REDACTED in text for text in shown.values()) > len(KEYS), "the provider does send them back"
    for place, text in shown.items():
        assert found_in(text, KEYS) == [], place
