"""The benchmark of gateways: its load generator sees what is there, and its page and chart say what was measured."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from bench.counts.peer import BEGIN, END, HEAD, http_chunk
from bench.gateway.chart import chart
from bench.gateway.measure import Figures, busy_elsewhere, most, streams_of_pause
from bench.gateway.native import PATH_OF, Load, Provider, Slices, compiled, cores_for, provider, question
from bench.gateway.programs import OWN, started
from bench.gateway.report import BEGIN as BEGIN_MARK
from bench.gateway.report import END as END_MARK
from bench.gateway.report import promises, ratios, write_docs

if sys.platform != "linux":
    pytest.skip("it needs epoll and /proc", allow_module_level=True)

ROOT = Path(__file__).parents[2]
needs_compiler = pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler")
LOAD_CORE = cores_for(1).load


@pytest.fixture(scope="module")
def upstream() -> Iterator[Provider]:
    with provider(LOAD_CORE) as running:
        yield running


def load(port: int, dialect: str = "chat") -> Load:
    return Load(port, PATH_OF[dialect], question("bench", dialect), LOAD_CORE)


@needs_compiler
@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_every_token_of_every_stream_is_counted_once(upstream: Provider, dialect: str) -> None:
    seen = load(upstream.port, dialect).paced(30, 20, 5, arrival_s=0.1)
    assert (seen.whole, seen.tokens, seen.failed) == (30, 600, 0)
    assert seen.repeated == (0 if dialect == "chat" else 4 * 600)  # the whole text, in the four events of its end
    assert 0 <= seen.token_ms.p50 <= seen.token_ms.p99 <= seen.token_ms.max
    assert seen.first_ms.max > 0


@needs_compiler
@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_in_step_every_slice_but_those_of_beginnings_and_ends_counts(upstream: Provider, dialect: str) -> None:
    slices = Slices(every_ms=50, us=5000)
    seen = load(upstream.port, dialect).in_step(30, 20, slices, [upstream.pid], upstream)
    assert (seen.whole, seen.tokens, seen.failed) == (30, 600, 0)
    assert seen.stepped_s == pytest.approx(17 * 0.05)
    assert seen.program_cpu_s > 0
    assert seen.token_ms.p50 <= seen.token_ms.p99 <= seen.token_ms.max
    assert seen.pause_ms >= 5.0  # from one slice to the next


@needs_compiler
def test_what_is_taken_from_a_program_is_not_its_own_time() -> None:
    [bare] = [program for program in OWN if program.name == "aiohttp"]
    slices, found = Slices(every_ms=50, us=10_000), []
    with provider(LOAD_CORE) as up, started(bare, up.port) as gateway:
        [pid] = gateway.processes()
        stepping = threading.Thread(target=lambda: found.append(gateway.load.in_step(50, 120, slices, [pid], up)))
        used_s = gateway.cpu_s()
        stepping.start()
        while stepping.is_alive() and gateway.cpu_s() < used_s + 0.1:  # then it is in the middle of it
            os.sched_yield()
        os.kill(pid, signal.SIGSTOP)
        try:
            assert stepping.is_alive()
            stopped_at = time.monotonic()
            while time.monotonic() < stopped_at + 0.4:
                os.sched_yield()
        finally:
            os.kill(pid, signal.SIGCONT)
            stepping.join()
        used_s = gateway.cpu_s() - used_s
    [seen] = found
    assert (seen.whole, seen.failed) == (50, 0)
    assert 0 < seen.program_cpu_s <= used_s + 0.02  # by the wall clock it is 0.4 s more


@needs_compiler
def test_in_step_a_stream_that_breaks_ends_the_load(upstream: Provider) -> None:
    slices = Slices(every_ms=50, us=1000)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(BEGIN + http_chunk(b"~00000000000"))

        answering = threading.Thread(target=answer)
        answering.start()
        seen = load(listener.getsockname()[1]).in_step(1, 5, slices, [upstream.pid], upstream)
        answering.join()
    assert (seen.whole, seen.failed, seen.tokens) == (0, 1, 1)


@needs_compiler
def test_requests_go_on_over_the_same_connections(upstream: Provider) -> None:
    seen = load(upstream.port).requests(4, 0.2)
    assert seen.whole > 4
    assert seen.failed == 0
    flat = load(upstream.port).flat_out(2, 1000, 0.2)
    assert flat.tokens >= flat.whole * 1000 > 0


@needs_compiler
def test_idle_streams_are_held_open(upstream: Provider) -> None:
    with load(upstream.port).idle(10) as seen:
        assert (seen.tokens, seen.whole) == (10, 0)


@needs_compiler
@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_what_the_provider_streams_is_a_stream_of_its_dialect(upstream: Provider, dialect: str, tmp_path: Path) -> None:
    body = msgspec.json.encode(question("bench", dialect)).replace(b"MODE", b"paced-3-1")
    address = f"http://127.0.0.1:{upstream.port}{PATH_OF[dialect]}"
    with urllib.request.urlopen(urllib.request.Request(address, body), timeout=30) as answer:
        (tmp_path / "stream").write_bytes(answer.read())
    command = [sys.executable, "-m", "tailrace", "decode", str(tmp_path / "stream"), "--dialect", dialect]
    decoded = msgspec.json.decode(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
    assert decoded["complete"]
    assert [part[:4] for part in decoded["text"].split("~")[1:]] == ["0000", "0001", "0002"]


@needs_compiler
@pytest.mark.parametrize(
    ("stream", "tokens"),
    [
        (BEGIN + http_chunk(b"~00000000000 ~00020000000") + END, 1),
        (BEGIN + http_chunk(b"~00000000000"), 1),
        (b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nbusy", 0),
    ],
    ids=["a token is missing", "cut", "refused"],
)
def test_a_stream_that_lacks_something_is_not_whole(stream: bytes, tokens: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(stream)

        answering = threading.Thread(target=answer)
        answering.start()
        seen = load(listener.getsockname()[1]).paced(1, 3, 5, arrival_s=0.0)
        answering.join()
    assert (seen.whole, seen.failed, seen.tokens) == (0, 1, tokens)
    assert seen.failure


@needs_compiler
def test_a_token_is_found_in_whatever_pieces_it_comes() -> None:
    pieces = [b"~0000", b"0000000~", b"000", b"10000000~00020000", b"000"]
    whole = HEAD + b"".join(map(http_chunk, pieces)) + b"0\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.recv(65536)
                for at in range(len(whole)):
                    connection.sendall(whole[at : at + 1])

        answering = threading.Thread(target=answer)
        answering.start()
        seen = load(listener.getsockname()[1]).paced(1, 3, 5, arrival_s=0.0)
        answering.join()
    assert (seen.whole, seen.tokens, seen.failed) == (1, 3, 0)


def test_without_a_compiler_one_line_says_so(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "bench", "gateway", "--quick"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "error: no C compiler on the PATH (cc, gcc, clang): the load generator of this benchmark is C\n"
    )


@needs_compiler
def test_the_programs_are_compiled_once() -> None:
    assert compiled("load") == compiled("load")


@pytest.mark.parametrize(("fitting", "start"), [(700, 100), (700, 5000), (700, 690), (15, 1000)])
def test_the_search_finds_the_most_that_fits(fitting: int, start: int) -> None:
    tried: list[int] = []

    def fits(number: int) -> bool:
        tried.append(number)
        return number <= fitting

    assert fitting * 0.9 <= most(fits, start, tries=16) <= fitting
    assert len(tried) <= 16
    assert len({*tried}) == len(tried)


def test_the_longest_pause_is_that_of_a_thousand_streams_where_the_program_carries_them() -> None:
    assert [streams_of_pause(carried) for carried in (2760, 1235, 1000, 999, 25)] == [1000, 1000, 1000, 499, 12]


def test_other_work_is_noticed() -> None:
    assert 0.0 <= busy_elsewhere(0.05) <= 1.0


def test_the_search_ends_in_time_with_a_number_that_fits() -> None:
    assert most(lambda number: number <= 500, 600, tries=16, until=0.0) == 300


def test_the_search_gives_up_where_nothing_fits() -> None:
    assert most(lambda _: False, 100, tries=16) == 0


@pytest.mark.parametrize(("fitting", "found"), [(500, 500), (523, 500), (900, 810)])
def test_a_further_round_finds_more_and_never_less(fitting: int, found: int) -> None:
    tried: list[int] = []

    def fits(number: int) -> bool:
        tried.append(number)
        return number <= fitting

    assert found <= most(fits, 550, tries=16, known=500) <= fitting
    assert min(tried) > 500


FIGURES = [
    Figures(
        "aiohttp",
        "prototype: aiohttp",
        "aiohttp 3",
        requests=1000,
        request_cpu_ms=1.0,
        flat=100e3,
        paced=10e3,
        first_ms=1.0,
    ),
    Figures("own", "prototype: own client", requests=2000, request_cpu_ms=0.5, flat=200e3, paced=20e3, first_ms=0.5),
    Figures(
        "raw",
        "Tailrace, raw <chat>",
        requests=400,
        request_cpu_ms=2.5,
        flat=170e3,
        flat_wall=21e3,
        paced=18e3,
        first_ms=1.4,
        idle_kb=24.0,
        limited=["flat"],
    ),
]


def test_ratios_are_against_the_prototypes() -> None:
    assert ratios(FIGURES)[2] == ["Tailrace, raw <chat>", "0.40×", "0.85×", "0.90×", "+0.40 ms"]


def test_a_promise_says_whether_it_holds() -> None:
    told = {row[0]: row[1:] for row in promises(FIGURES)}
    assert told["CPU of a request, of the aiohttp prototype's"] == ["2.50", "at most 2", "not yet"]
    assert told["paced, of the own-client prototype's"] == ["0.90", "at least 0.85", "holds"]
    assert not [what for what in told if what.startswith(("stored", "longest pause"))]  # not measured


def test_the_page_gets_its_figures_between_the_marks(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"before\n{BEGIN_MARK}\nmeasured before\n{END_MARK}\nafter\n", encoding="utf-8")
    beside = tmp_path / "measured.md"
    write_docs(FIGURES, tmp_path, quick=True, busy=0.25, measured_page=beside)
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{BEGIN_MARK}\nMeasured on ")
    assert text.endswith(f"\n{END_MARK}\nafter\n")
    assert "measured before" not in text
    assert " | ≥ 170.0k; 21.0k | 18.0k | " in beside.read_text(encoding="utf-8")
    assert "\nprototype: aiohttp | aiohttp 3\n" in beside.read_text(encoding="utf-8")
    assert " cores of which other work took 25%, " in text
    write_docs(FIGURES, tmp_path, quick=True, busy=0.25, measured_page=beside)
    assert page.read_text(encoding="utf-8") == text


def test_the_chart_names_every_program_and_follows_the_scheme() -> None:
    drawn = chart(FIGURES)
    texts = [element.text for element in ET.fromstring(drawn).iter() if element.text]  # noqa: S314 - our own
    assert sum(text == "Tailrace, raw <chat>" for text in texts) == 3
    assert "prefers-color-scheme: dark" in drawn


def test_the_page_has_room_for_figures() -> None:
    text = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
    assert text.index(BEGIN_MARK) < text.index(END_MARK)
