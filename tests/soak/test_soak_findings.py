"""A soak can fail: what grows, leaks, is late or is wrong is found."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from xml.etree import ElementTree as ET

import aiohttp
import pytest
from aiohttp import web
from msgspec.structs import replace
from proof.soak.bare_timer import BareTimer, bare_timer
from proof.soak.plot import svg
from proof.soak.provider import TEXT
from proof.soak.samples import Buckets, Finding, Sample, findings, late_by
from proof.soak.visits import Broken, Client, agent_run, raw_stream, raw_whole


def timers(second: int, late: float) -> Buckets:
    """One a second; `late`: the share of those over 50 ms."""
    in_time = second * (1 - late)
    return ((0.01, in_time), (0.05, in_time), (0.25, float(second)), (float("inf"), float(second)))


IDLE = Sample(0.0, 100.0, 20, 0, timers(0, 0.0), timers(0, 0.0))


def load(memory: Callable[[int], float] = lambda _: 100.0, late: float = 0.0, bare: float = 0.0) -> list[Sample]:
    """A thousand seconds; `late`, `bare`: of the server's timers and of the bare one."""
    return [
        Sample(float(second), memory(second), 60, second, timers(second, late), timers(second, bare))
        for second in range(1, 1001)
    ]


def failed(found: list[Finding]) -> list[str]:
    return [finding.name.partition(",")[0] for finding in found if not finding.holds]


def test_a_server_that_stays_as_it_is_holds() -> None:
    assert failed(findings(load(), IDLE, IDLE)) == []


def test_a_server_that_grows_is_found() -> None:
    assert failed(findings(load(lambda second: 100 + second / 40), IDLE, IDLE)) == ["memory"]


def test_growth_while_it_warms_up_is_none() -> None:
    assert failed(findings(load(lambda second: min(100 + second, 200.0)), IDLE, IDLE)) == []


def test_descriptors_that_stay_open_are_found() -> None:
    assert failed(findings(load(), IDLE, replace(IDLE, descriptors=60))) == ["descriptors after the load"]


def test_a_loop_that_is_late_more_often_than_once_in_a_hundred_is_found() -> None:
    assert failed(findings(load(late=0.005), IDLE, IDLE)) == []
    assert failed(findings(load(late=0.02), IDLE, IDLE)) == ["loop lag"]
    assert late_by(IDLE.lag, load()[-1].lag) == 0.01


def test_a_loop_is_not_found_late_where_the_machine_is() -> None:
    assert failed(findings(load(late=0.02, bare=0.02), IDLE, IDLE)) == []
    unmeasured = [replace(sample, bare=()) for sample in load(late=0.02)]
    assert failed(findings(unmeasured, IDLE, IDLE)) == ["loop lag"]


class ThreeTimes(BareTimer):
    def __init__(self) -> None:
        super().__init__()
        self.told = asyncio.Event()

    def observe(self, late_s: float) -> None:
        super().observe(late_s)
        if self.buckets()[-1][1] == 3:
            self.told.set()


async def test_the_bare_timer_tells_how_late_it_was_and_ends_with_its_reader() -> None:
    async with bare_timer(ThreeTimes()) as timer, asyncio.timeout(30):
        await timer.told.wait()
    counts = [count for _, count in timer.buckets()]
    assert counts == sorted(counts)
    assert counts[-1] >= 3


def test_the_plot_is_svg_with_a_line_for_each_figure() -> None:
    drawn = ET.fromstring(svg(load(), findings(load(), IDLE, IDLE), "1,000 s <of> load"))  # noqa: S314 - our own
    lines = drawn.findall("{http://www.w3.org/2000/svg}polyline")
    assert [len(line.get("points", "").split()) > 100 for line in lines] == [True] * 5


@asynccontextmanager
async def answering(answer: Callable[[web.Request], web.Response]) -> AsyncGenerator[Client, None]:
    """A client of a server that gives this answer to everything."""

    async def handle(request: web.Request) -> web.Response:
        return answer(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        async with aiohttp.ClientSession() as http:
            yield Client(http, site.name, _AlwaysFirst())
    finally:
        await runner.cleanup()


class _AlwaysFirst(random.Random):
    """Chooses the chat dialect, and never to leave."""

    def choice(self, seq):  # type: ignore[no-untyped-def]
        return seq[0]

    def random(self) -> float:
        return 0.99


def completion(text: str) -> web.Response:
    message = {"role": "assistant", "content": text}
    return web.json_response({"id": "c", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})


async def test_an_answer_that_is_not_the_text_is_found() -> None:
    async with answering(lambda _: completion(TEXT)) as client:
        assert await raw_whole(client) == "whole"
    for wrong in (TEXT[:-1], TEXT + TEXT[-4:], TEXT.replace("word7 ", "", 1)):
        async with answering(lambda _, said=wrong: completion(said)) as client:  # type: ignore[misc]
            with pytest.raises(Broken, match="not the text"):
                await raw_whole(client)


async def test_a_stream_that_ends_without_a_word_is_found() -> None:
    chunk = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"word0"}}]}\n\n'
    async with answering(lambda _: web.Response(body=chunk, content_type="text/event-stream")) as client:
        with pytest.raises(Broken, match="without its end"):
            await raw_stream(client)


async def test_an_entry_that_comes_twice_is_found() -> None:
    entry = b'data: {"seq":3,"type":"message_chunk","text":"The"}\n\n'

    def answer(request: web.Request) -> web.Response:
        if request.method == "POST":
            return web.json_response({"id": "run_1"}, status=201)
        return web.Response(body=entry * 2, content_type="text/event-stream")

    async with answering(answer) as client:
        with pytest.raises(Broken, match="entry 3 came again"):
            await agent_run(client)
