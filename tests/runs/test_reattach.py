"""A killed process's answer goes on at the provider that keeps it: Tailrace over Tailrace, one generation in all."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from runs.test_takeover import killed, recovering, victim
from tailrace.agent.model_call import _SummaryListener
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import App, open_app
from tailrace.calls.service import CallSpec
from tailrace.config.load import Config, load
from tailrace.events import (
    AnswerKept,
    AttemptDiscarded,
    AttemptStarted,
    GatewayNotice,
    LlmDelta,
    MessageChunk,
    ProviderEvents,
    StepFinished,
    UsageRecorded,
)
from tailrace.messages import user
from tailrace.providers import call
from tailrace.providers.http.reattaching import ReattachingHttpProvider
from tailrace.providers.open_attempt import ResumableAnswer
from tailrace.runs.host import RunHost
from tailrace.runs.recovery import finished


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine tells the provider late."""
    monkeypatch.setattr(call, "CANCEL_TIMEOUT_S", 60.0)


WORDS = [f"word{n} " for n in range(40)]
TEXT = "".join(WORDS)


class GatedModel:
    """A chat model that says half of its answer, and the rest once the gate is open. Counts what it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.left = asyncio.Event()  # a caller has closed its connection before the end
        self.is_open = asyncio.Event()
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        self.asked += 1
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        try:
            await response.write(b"".join(map(_chunk, WORDS[:20])))
            await self.is_open.wait()
            usage = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":40}}\n\n'
            stop = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
            await response.write(b"".join(map(_chunk, WORDS[20:])) + stop + usage + b"data: [DONE]\n\n")
        except asyncio.CancelledError:
            self.left.set()
            raise
        return response

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[GatedModel, None]:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.answer)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        try:
            yield self
        finally:
            await runner.cleanup()


def _chunk(word: str) -> bytes:
    return (
        b'data: {"id":"c1","choices":[{"index":0,"delta":{"content":"%b"},"finish_reason":null}]}\n\n' % word.encode()
    )


@asynccontextmanager
async def tailrace_serve(home: Path, model: GatedModel) -> AsyncGenerator[str, None]:
    """Another Tailrace in a process of its own, as a provider; its address."""
    home.mkdir()  # noqa: ASYNC240 - a test's own directory
    (home / "config.yaml").write_text(
        "model: {provider: gated, name: m}\n"
        f"providers: {{gated: {{dialect: chat, base_url: '{model.url}'}}}}\n"
        "server: {aliases: {ok: gated/m}}\n",
        encoding="utf-8",
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tailrace", "serve", "--port", "0"),
        env={"PATH": os.environ["PATH"], "TAILRACE_HOME": str(home)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    try:
        async for line in process.stdout:
            if found := re.search(rb"http://127\.0\.0\.1:\d+", line):
                yield found[0].decode()
                break
    finally:
        process.kill()
        await process.communicate()


def config_of(home: Path, url: str, *, more: str = "", also: str = "") -> Config:
    (home / "config.yaml").write_text(
        "model: {provider: faulty, name: ok}\n"
        "providers:\n"
        f"  faulty: {{dialect: responses, base_url: '{url}/v1', reattach: true, backoff_s: 0.01{more}}}\n"
        f"store: {{lease_s: 1}}\n{also}",
        encoding="utf-8",
    )
    return load({}, home)


@pytest.mark.parametrize("kind", ["agent", "call", "llm_call"])
async def test_L145_a_killed_processs_answer_is_read_on_and_generated_once(tmp_path: Path, kind: str) -> None:
    async with GatedModel().serving() as model, tailrace_serve(tmp_path / "provider", model) as url:
        async with (
            open_app(config_of(tmp_path, url), directory=tmp_path) as app,
            victim(tmp_path, kind) as (process, run_id),
            recovering(app),
        ):
            await killed(process)
            model.is_open.set()
            end = await finished(app.journal, run_id)
            entries = await app.journal.read(run_id)
        events = [entry.event for entry in entries]
        assert end.status == "completed"
        assert model.asked == 1
        assert sum(isinstance(event, AttemptStarted) for event in events) == 1
        assert not [event for event in events if isinstance(event, AttemptDiscarded | GatewayNotice)]
        (usage,) = [event.usage for event in events if isinstance(event, UsageRecorded)]
        assert (usage.input_tokens, usage.output_tokens) == (7, 40)
        shown = "".join(e.text for e in events if isinstance(e, MessageChunk))
        shown += "".join(e.delta for e in events if isinstance(e, LlmDelta))
        assert shown == TEXT
        relayed = [each for e in events if isinstance(e, ProviderEvents) for each in e.events]
        numbers = [each["sequence_number"] for each in relayed]
        assert numbers == list(range(len(numbers)))  # a client that resumes the response sees each event once
        assert bool(numbers) == (kind == "call")
        if kind == "llm_call":
            (output,) = [event.output for event in events if isinstance(event, StepFinished)]
            assert output["message"]["content"] == TEXT
        else:
            assert end.output == TEXT


@asynccontextmanager
async def cutting_proxy(url: str) -> AsyncGenerator[tuple[str, set[asyncio.StreamWriter]], None]:
    """A TCP proxy before this address, and the connections of its clients: abort one to cut it."""
    clients: set[asyncio.StreamWriter] = set()
    port = int(url.rpartition(":")[2])

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        clients.add(writer)
        await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer))
        clients.discard(writer)

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", clients
    finally:
        server.close()
        for writer in clients:
            writer.transport.abort()
        await server.wait_closed()


async def first_words(app: App, kind: str = "agent") -> str:
    """A turn that has begun to answer, or a call."""
    if kind == "agent":
        run = await app.agents.submit(TurnSpec(user("count")), session="s")
    else:
        spec = CallSpec({"model": "faulty/ok", "input": "count", "background": True})
        run = await app.calls.submit(spec, model="faulty/ok", session="", durability="committed")
    async for batch in app.journal.tail(run.id):
        if any(isinstance(entry.event, MessageChunk) for entry in batch):
            break
    return run.id


async def test_a_connection_that_is_cut_in_the_middle_is_read_on(tmp_path: Path) -> None:
    async with (
        GatedModel().serving() as model,
        tailrace_serve(tmp_path / "provider", model) as url,
        cutting_proxy(url) as (proxied, clients),
        open_app(config_of(tmp_path, proxied), directory=tmp_path) as app,
    ):
        run_id = await first_words(app)
        for writer in list(clients):
            writer.transport.abort()
        model.is_open.set()
        end = await app.agents.finished(run_id)
        assert (end.status, end.output, model.asked) == ("completed", TEXT, 1)
        assert end.usage.output_tokens == 40


@pytest.mark.parametrize("kind", ["agent", "call", "llm_call"])
async def test_a_dead_processs_run_that_is_stopped_is_cancelled_at_the_provider_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Then it is ended: a process that dies in between leaves a run that the next one stops."""
    async with (
        GatedModel().serving() as model,
        tailrace_serve(tmp_path / "provider", model) as url,
        open_app(config_of(tmp_path, url), directory=tmp_path) as app,
        victim(tmp_path, kind) as (process, run_id),
    ):
        await killed(process)
        hosts: dict[str, RunHost[Any]] = {"agent": app.agents, "call": app.calls, "llm_call": app.flows}
        left_calls, states = hosts[kind].left_calls, list[str]()
        assert left_calls is not None
        cancel_answer = left_calls.cancel

        async def cancel(answer: ResumableAnswer) -> None:
            states.append((await app.journal.get(run_id)).state)
            await cancel_answer(answer)

        monkeypatch.setattr(left_calls, "cancel", cancel)
        await hosts[kind].stop(run_id)
        assert (await finished(app.journal, run_id)).status == "stopped"
        await model.left.wait()
        assert states == ["running"]


async def test_a_stopped_run_is_cancelled_at_the_provider(tmp_path: Path) -> None:
    async with (
        GatedModel().serving() as model,
        tailrace_serve(tmp_path / "provider", model) as url,
        open_app(config_of(tmp_path, url), directory=tmp_path) as app,
    ):
        run_id = await first_words(app)
        kept = [e.event for e in await app.journal.read(run_id) if isinstance(e.event, AnswerKept)]
        assert len(kept) == 1
        await app.agents.stop(run_id)
        assert (await app.agents.finished(run_id)).status == "stopped"
        await model.left.wait()  # the provider has stopped its own model
        assert model.asked == 1


@pytest.mark.parametrize("kind", ["agent", "call"])
async def test_a_stopped_runs_answer_is_cancelled_also_where_its_process_ends_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    async with (
        GatedModel().serving() as model,
        tailrace_serve(tmp_path / "provider", model) as url,
        open_app(config_of(tmp_path, url), directory=tmp_path) as app,
    ):
        host = app.agents if kind == "agent" else app.calls
        run_id = await first_words(app, kind)
        released: list[asyncio.Future[bool]] = []
        cancel_answer = ReattachingHttpProvider.cancel_answer

        async def cancelled(self: ReattachingHttpProvider, answer_id: str) -> None:
            released.append(asyncio.ensure_future(host.release()))
            await asyncio.sleep(0)
            await cancel_answer(self, answer_id)

        monkeypatch.setattr(ReattachingHttpProvider, "cancel_answer", cancelled)
        await host.stop(run_id)
        assert (await finished(app.journal, run_id)).status == "stopped"
        async with asyncio.timeout(30):
            await model.left.wait()
        assert await released[0]


async def test_a_summary_that_is_interrupted_is_cancelled_at_the_provider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody reads it on: a process that goes on with the turn asks for another one."""
    asked = asyncio.Event()
    monkeypatch.setattr(_SummaryListener, "answer_resumable", lambda _listener, _answer_id: asked.set())
    async with GatedModel().serving() as model, tailrace_serve(tmp_path / "provider", model) as url:
        config = config_of(tmp_path, url, also="agent: {context_tokens: 2000}\n")
        async with open_app(config, directory=tmp_path) as app:
            model.is_open.set()
            run = await app.agents.submit(TurnSpec(user("a" * 16_000)), session="s")
            assert (await app.agents.finished(run.id)).status == "completed"
            model.is_open.clear()
            run = await app.agents.submit(TurnSpec(user("b")), session="s")
            await asked.wait()
            await app.agents.stop(run.id)
            assert (await app.agents.finished(run.id)).status == "stopped"
            async with asyncio.timeout(30):
                await model.left.wait()


async def test_a_drained_process_leaves_the_answer_to_the_next_one(tmp_path: Path) -> None:
    async with GatedModel().serving() as model, tailrace_serve(tmp_path / "provider", model) as url:
        config = config_of(tmp_path, url)
        async with open_app(config, directory=tmp_path) as app:
            run_id = await first_words(app)
        model.is_open.set()
        async with open_app(config, directory=tmp_path) as app:
            assert await app.agents.recover() == [run_id]
            end = await app.agents.finished(run_id)
        assert (end.status, end.output, model.asked, model.left.is_set()) == ("completed", TEXT, 1, False)
