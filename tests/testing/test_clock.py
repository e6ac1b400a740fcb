"""The driven clock: it jumps over waiting, and never over anything that can still happen."""

from __future__ import annotations

import asyncio
import multiprocessing
import selectors
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest
from aiohttp import web

from tailrace.testing.clock import Deadlock, DrivenLoop, _DrivenSelector, driven, run_driven

WALL_S = 5.0  # what "at once" may take on a busy machine; the driven times are far above it


def now() -> float:
    return asyncio.get_running_loop().time()


class LateKernel(selectors.DefaultSelector):
    """A kernel that never has anything ready when asked in passing, only when waited for.

    Loopback usually delivers within the system call, which hides a clock that jumps too early; this shows it.
    """

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return [] if timeout == 0 else super().select(timeout)


class LateSelector(_DrivenSelector, LateKernel):
    """The driven selector over such a kernel."""


class LateLoop(DrivenLoop):
    _selector_class = LateSelector


@pytest.fixture(params=[DrivenLoop, LateLoop])
def loop_factory(request: pytest.FixtureRequest) -> type[DrivenLoop]:
    chosen: type[DrivenLoop] = request.param
    return chosen


@asynccontextmanager
async def serve(handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[int]:
    """A server on a free port; when the block is left, each of its connections has been closed."""
    handled: list[asyncio.Future[None]] = []

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handled.append(asyncio.get_running_loop().create_future())
        done = handled[-1]
        try:
            await handle(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            done.set_result(None)

    server = await asyncio.start_server(run, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        await asyncio.gather(*handled)


def test_a_long_sleep_takes_no_time() -> None:
    async def main() -> float:
        began = now()
        await asyncio.sleep(900)
        return now() - began

    wall = time.monotonic()
    assert run_driven(main()) == pytest.approx(900)
    assert time.monotonic() - wall < WALL_S


@driven
async def test_timers_fire_in_order_at_their_own_times() -> None:
    fired: list[tuple[float, float]] = []
    began = now()

    async def wait(delay: float) -> None:
        await asyncio.sleep(delay)
        fired.append((delay, round(now() - began, 6)))

    await asyncio.gather(*(wait(delay) for delay in (300, 0.5, 30, 30.25, 1)))
    assert fired == [(delay, delay) for delay in (0.5, 1, 30, 30.25, 300)]


@driven
async def test_the_clock_stands_still_while_code_runs() -> None:
    began = now()
    for _ in range(20):
        time.sleep(0.001)  # noqa: ASYNC251 - busy code is the point
        await asyncio.sleep(0)
    assert now() == began


@driven
async def test_a_deadline_on_a_silent_socket_passes_at_once() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serve(silent) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        began = now()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(240):
                await reader.read(1)
        assert now() - began == pytest.approx(240)
        writer.close()
        await writer.wait_closed()


def test_no_deadline_fires_while_bytes_are_under_way(loop_factory: type[DrivenLoop]) -> None:
    """A ping-pong of 2,000 turns under a deadline of a microsecond: one jump too early would break it."""

    async def main() -> None:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(64):
                writer.write(data)

        async with serve(echo) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            began = now()
            for turn in range(2000):
                async with asyncio.timeout(1e-6):
                    writer.write(b"%d\n" % turn)
                    assert await reader.readline() == b"%d\n" % turn
            assert now() == began
            writer.close()
            await writer.wait_closed()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


def test_no_deadline_fires_before_a_closed_peer_is_noticed(loop_factory: type[DrivenLoop]) -> None:
    async def main() -> None:
        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(1)

        async with serve(hang_up) as port:
            for _ in range(200):
                async with asyncio.timeout(1e-6):
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.write(b"x")
                    assert await reader.read() == b""
                    writer.close()
                    await writer.wait_closed()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


def test_no_deadline_fires_while_a_large_body_drains_through_full_buffers(loop_factory: type[DrivenLoop]) -> None:
    async def main() -> None:
        size = 8_000_000

        async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"x" * size)
            await writer.drain()

        async with serve(pour) as port:
            began = now()
            async with asyncio.timeout(1e-6):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                assert len(await reader.readexactly(size)) == size
            assert now() == began
            writer.close()
            await writer.wait_closed()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


@driven
async def test_a_writer_blocked_by_a_reader_that_stopped_meets_its_deadline() -> None:
    """F73: here nothing is due, although bytes lie in the kernel; the clock must move."""
    blocked = asyncio.get_running_loop().create_future()

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        began = now()
        try:
            async with asyncio.timeout(60):
                while True:
                    writer.write(b"x" * 100_000)
                    await writer.drain()
        except TimeoutError:
            blocked.set_result(now() - began)
        writer.transport.abort()

    async with serve(pour) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        assert await blocked == pytest.approx(60)
        writer.close()
        await writer.wait_closed()


@driven
async def test_a_thread_at_work_is_waited_for_in_real_time() -> None:
    began = now()
    async with asyncio.timeout(30):
        await asyncio.to_thread(time.sleep, 0.05)
    assert 0.04 < now() - began < WALL_S


@driven
async def test_a_worker_process_is_waited_for_in_real_time() -> None:
    loop = asyncio.get_running_loop()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        async with asyncio.timeout(60):
            assert await loop.run_in_executor(pool, abs, -3) == 3


@driven
async def test_an_idle_worker_thread_does_not_hold_the_clock() -> None:
    await asyncio.to_thread(abs, -3)
    began, wall = now(), time.monotonic()
    for _ in range(500):
        await asyncio.sleep(1)
    assert now() - began == pytest.approx(500)
    assert time.monotonic() - wall < WALL_S


@driven
async def test_a_dual_stack_listener_is_inside() -> None:
    """Its IPv4 peers have another name on its side than on their own."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    listener = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    async with await asyncio.start_server(silent, sock=listener):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.getsockname()[1])
        wall = time.monotonic()
        for _ in range(20):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(1), 60)
        assert time.monotonic() - wall < WALL_S
        writer.close()
        await writer.wait_closed()
        await asyncio.sleep(1)


@driven
async def test_a_deadline_on_a_thread_still_passes() -> None:
    release = threading.Event()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await asyncio.to_thread(release.wait, 10)
    release.set()


@driven
async def test_a_thread_of_ones_own_is_waited_for_when_declared() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, DrivenLoop)
    done = asyncio.Event()

    def work() -> None:
        time.sleep(0.05)
        loop.call_soon_threadsafe(done.set)

    began = now()
    with loop.outside():
        thread = threading.Thread(target=work)
        thread.start()
        async with asyncio.timeout(30):
            await done.wait()
    assert now() - began < WALL_S
    thread.join()


@driven
async def test_a_subprocess_is_waited_for_in_real_time() -> None:
    began = now()
    async with asyncio.timeout(60):
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "print(sum(range(1_000_000)))", stdout=asyncio.subprocess.PIPE
        )
        out, _ = await child.communicate()
    assert out.strip() == b"499999500000"
    assert now() - began < 30


@driven
async def test_a_peer_outside_the_loop_is_waited_for_in_real_time() -> None:
    """The other end is a blocking socket that nobody told the loop about."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1)
            time.sleep(0.05)
            connection.sendall(b"late")

    thread = threading.Thread(target=answer)
    thread.start()
    async with asyncio.timeout(30):
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(b"?")
        assert await reader.read() == b"late"
    writer.close()
    await writer.wait_closed()
    thread.join()
    listener.close()


def test_waiting_for_nothing_is_an_error_and_not_a_hang() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run_driven(main())


@driven
async def test_aiohttp_works_over_it_and_its_timeouts_are_driven() -> None:
    async def slow(_request: web.Request) -> web.Response:
        await asyncio.sleep(120)
        return web.Response(text="worth it")

    app = web.Application()
    app.router.add_get("/", slow)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    began = now()
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://{host}:{port}/", timeout=aiohttp.ClientTimeout(total=200)) as response:
            assert await response.text() == "worth it"
        with pytest.raises(TimeoutError):
            await session.get(f"http://{host}:{port}/", timeout=aiohttp.ClientTimeout(total=30))
    # aiohttp rounds a timeout of more than 5 s up to a whole second of the loop's clock
    assert now() - began == pytest.approx(150, abs=1)
    await runner.cleanup()


@pytest.mark.parametrize("argument", [1, 2])
@driven
async def test_the_decorator_keeps_parameters_and_fixtures(argument: int, tmp_path: object) -> None:
    assert argument in (1, 2)
    assert tmp_path is not None
    assert isinstance(asyncio.get_running_loop(), DrivenLoop)
