"""What is counted, and how it is shown."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
from pathlib import Path

import pytest

from server.http_server import RunningServer, running_server
from tailrace.agent.safety.redact import Redactor
from tailrace.app.telemetry.access_log import AccessLog
from tailrace.app.telemetry.logging_setup import ACCESS, FIELDS, REQUEST, Format, configure
from tailrace.events import UsageRecorded
from tailrace.messages import Usage
from tailrace.providers.call import Caller
from tailrace.server.metrics.call_metrics import count_attempts
from tailrace.server.metrics.registry import Counter, Gauge, Histogram, Metrics
from tailrace.testing.provider import reply

# The text format, version 0.0.4: a comment, or a name, its labels and a number.
LINE = re.compile(
    r"# (HELP|TYPE) [a-z_:]+ .+|"
    r'[a-z_:]+(\{[a-z_]+="([^"\\\n]|\\[\\"n])*"(,[a-z_]+="([^"\\\n]|\\[\\"n])*")*\})? [0-9.e+-]+'
)


def values(text: str) -> dict[str, float]:
    for line in text.splitlines():
        assert LINE.fullmatch(line), line
    pairs = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(number) for name, _, number in pairs}


async def scrape(server: RunningServer) -> dict[str, float]:
    async with server.client.get(server.url + "/metrics") as response:
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return values(await response.text())


async def test_a_failure_is_a_series_before_there_is_one(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        seen = await scrape(server)
    assert seen['tailrace_runs_total{kind="agent",status="failed"}'] == 0
    assert seen['tailrace_runs_total{kind="agent",status="completed"}'] == 0
    assert seen['tailrace_runs_total{kind="sequence",status="failed"}'] == 0


async def test_sequences_are_counted_as_they_end(tmp_path: Path) -> None:
    sleep = {"type": "step", "id": "nap", "handler": "sleep", "params": {"seconds": 0}}
    async with running_server(tmp_path) as server:
        _, sequence = await server.json("POST", "/sequences", {"name": "naps", "blocks": [sleep]})
        _, instance = await server.json("POST", "/instances", {"sequence_id": sequence["id"]})
        await server.app.flows.finished(instance["id"])
        seen = await scrape(server)
    assert seen['tailrace_runs_total{kind="sequence",status="completed"}'] == 1


async def test_a_scrape_tells_what_happened(tmp_path: Path) -> None:
    script = ("status-503", "status-500", reply("One two three."), "status-400", "status-400")
    async with running_server(tmp_path, *script) as server:
        first = await server.start()
        await server.app.agents.finished(first)
        second = await server.start()
        await server.app.agents.finished(second)
        await server.json("GET", "/nowhere")
        seen = await scrape(server)
    assert seen['tailrace_runs_total{kind="agent",status="completed"}'] == 1
    assert seen['tailrace_runs_total{kind="agent",status="failed"}'] == 1
    assert seen['tailrace_requests_total{route="/runs",status="201"}'] == 2
    assert seen['tailrace_requests_total{route="-",status="404"}'] == 1
    again = sum(number for name, number in seen.items() if re.match(r"tailrace_(retries|failovers)_total", name))
    assert again == 3  # two in the first run, one in the second
    assert seen["tailrace_time_to_first_token_seconds_count"] == 1
    assert seen["tailrace_inter_token_seconds_count"] >= 1
    assert sum(n for name, n in seen.items() if name.startswith("tailrace_tokens_total")) > 0
    assert seen["tailrace_journal_lag_seconds_count"] == 0, "nothing waits for a store in memory"
    assert seen["tailrace_runs_running"] == 0


async def test_the_journal_s_lag_is_that_of_each_commit(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("One two three."), store="sqlite:///runs.db") as server:
        run = await server.start()
        events = await server.events(f"/runs/{run}/stream")
        lag = server.metrics.journal_lag
    assert 1 <= sum(lag.counts) <= len(events)
    assert 0 < lag.total < 60


async def test_viewers_are_counted_while_they_watch(tmp_path: Path) -> None:
    async with running_server(tmp_path, "silence") as server:
        run = await server.start()
        async with server.client.get(f"{server.url}/runs/{run}/stream?after=1"):
            watched = (await scrape(server))["tailrace_viewers"]
            running = (await scrape(server))["tailrace_runs_running"]
        await server.app.agents.stop(run)
        await server.events(f"/runs/{run}/stream")
        left = server.metrics.viewers.values[()]
    assert (watched, running) == (1, 1)
    assert left == 0


def test_an_attempt_that_ended_with_another_process_is_counted_here() -> None:
    metrics = Metrics()
    Caller(observers=[count_attempts(metrics)]).count_lost(UsageRecorded(Usage(3, 2, estimated_tokens=5), "p", "m"))
    assert [line.split()[-1] for line in metrics.tokens.samples()] == ["3", "2"]
    assert [line.split()[-1] for line in metrics.calls.samples()] == ["1"]


def test_the_text_of_each_kind() -> None:
    counter, gauge = Counter("c_total", "C.", ("a", "b")), Gauge("g", "G.")
    counter.inc('x"\\\n', "y", by=2)
    gauge.inc()
    gauge.inc(by=-1)
    histogram = Histogram("h", "H.", (0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(value)
    assert list(counter.samples()) == ['c_total{a="x\\"\\\\\\n",b="y"} 2']
    assert list(gauge.samples()) == ["g 0"]
    assert list(histogram.samples()) == [
        'h_bucket{le="0.1"} 2',
        'h_bucket{le="1"} 3',
        'h_bucket{le="+Inf"} 4',
        "h_sum 7.65",
        "h_count 4",
    ]


def test_names_are_unique_and_end_as_they_should() -> None:
    metrics = vars(Metrics()).values()
    names = [metric.name for metric in metrics]
    assert len(set(names)) == len(names)
    for metric in metrics:
        assert metric.name.endswith("_total") == (metric.kind == "counter")


# ── logs ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", ["text", "json"])
async def test_J114_no_log_line_has_a_secret(tmp_path: Path, form: str) -> None:
    out = io.StringIO()
    key = "sk-tailrace-123456789"
    async with running_server(tmp_path, env={"TAILRACE_API_KEY": key}, headers={"x-api-key": key}) as server:
        configure(server.app.redactor, form="json" if form == "json" else "text", stream=out)
        await server.json("GET", f"/runs?before={key}")
        await server.json("GET", f"/runs/{key}")
        logging.getLogger("tailrace.server").error("leaked %s", key, exc_info=RuntimeError(f"with {key}"))
    lines = out.getvalue()
    assert key not in lines
    assert "[redacted]" in lines
    assert "route=/runs/{id}" in lines or '"route":"/runs/{id}"' in lines


async def test_the_log_says_whose_key_lacks_a_scope(tmp_path: Path) -> None:
    out = io.StringIO()
    keys = "server: {keys: [{name: ci, key_env: CI_KEY, scopes: [models]}]}\n"
    env = {"TAILRACE_API_KEY": "sk-of-the-server", "CI_KEY": "sk-of-another"}
    async with running_server(tmp_path, env=env, config=keys, headers={"x-api-key": "sk-of-another"}) as server:
        configure(server.app.redactor, stream=out)
        status, body = await server.json("GET", "/metrics")
    assert (status, body["error"]["details"]) == (403, {"scope": "admin"})
    assert "route=/metrics status=403" in out.getvalue()
    assert "key=ci" in out.getvalue()


def test_a_json_line_is_one_object_with_the_requests_fields() -> None:
    out = io.StringIO()
    configure(Redactor(), form="json", stream=out)
    logging.getLogger("tailrace.access").info("request", extra={"request_id": "req_1", "status": 200})
    logging.getLogger("tailrace.server").error("failed", exc_info=ValueError("two\nlines"))
    first, second = map(json.loads, out.getvalue().splitlines())
    assert (first["message"], first["request_id"], first["status"]) == ("request", "req_1", 200)
    assert second["trace"].endswith("ValueError: two\nlines")


def test_a_text_line_stays_one_line() -> None:
    out = io.StringIO()
    configure(Redactor(), stream=out)
    logging.getLogger("tailrace.server").info("forged\n2026 info all is well \x1b[2J")
    assert out.getvalue().count("\n") == 1
    assert "\x1b" not in out.getvalue()


@pytest.mark.parametrize("worker", [None, 2])
@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("redactor", [Redactor(), Redactor(["sk-secret-1"]), Redactor(patterns=[r"^\S+", r"k-\w+$"])])
def test_J114_a_request_that_waited_reads_as_its_record_would(
    redactor: Redactor, form: Format, worker: int | None
) -> None:
    requests = [
        (1_700_000_000.1239996, "req_1", "POST", "/runs/{id}", 200, 12.3, "local"),
        (1_700_000_001.0, "sk-secret-1", "GET", "-", 404, 0.0, "né\n\x1b[2J"),
        *((1_700_000_002.0 + n, f"req_{n}", "GET", "/runs", 499, 0.1, "k-x") for n in range(30)),
    ]
    waited, logged = io.StringIO(), io.StringIO()
    handler = configure(redactor, form=form, stream=logged, worker=worker)
    for created, *values in requests:
        record = ACCESS.makeRecord(ACCESS.name, logging.INFO, "", 0, REQUEST, (), None)
        record.created = created
        vars(record).update(zip(FIELDS, values, strict=True))
        handler.handle(record)
    handler = configure(redactor, form=form, stream=waited, worker=worker)
    for request in requests:
        handler.add_request(request)
    handler.flush()
    assert waited.getvalue() == logged.getvalue()
    assert "sk-secret-1" not in waited.getvalue() or not redactor.secrets


async def test_lines_of_requests_are_written_before_any_later_line() -> None:
    out = io.StringIO()
    configure(Redactor(), stream=out)
    access = AccessLog(asyncio.get_running_loop())
    for number in range(25):
        access.add(f"req_{number}", "GET", "/runs", 200, 0.001, "local")
    assert out.getvalue() == ""
    await asyncio.to_thread(logging.getLogger("tailrace.server").warning, "later")
    lines = out.getvalue().splitlines()
    assert [re.findall(r"req_\d+|later", line) for line in lines] == [[f"req_{n}"] for n in range(25)] + [["later"]]
    access.add("req_last", "GET", "/runs", 200, 0.001, "local")
    configure(Redactor(), stream=io.StringIO())
    assert "req_last" in out.getvalue(), "written before its handler was replaced"


async def test_a_line_of_a_request_is_written_without_another() -> None:
    written = asyncio.Event()

    class Stream(io.StringIO):
        def flush(self) -> None:
            written.set()

    out = Stream()
    configure(Redactor(), stream=out)
    AccessLog(asyncio.get_running_loop()).add("req_1", "GET", "/runs", 200, 0.001, "local")
    assert not written.is_set()
    await asyncio.wait_for(written.wait(), 5)
    assert "request_id=req_1 method=GET route=/runs status=200 duration_ms=1.0 key=local\n" in out.getvalue()


async def test_a_handler_of_somebody_else_gets_records_of_requests() -> None:
    out, records = io.StringIO(), list[logging.LogRecord]()
    configure(Redactor(), stream=out)

    class Other(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    other = Other()
    logging.getLogger("tailrace").addHandler(other)
    try:
        AccessLog(asyncio.get_running_loop()).add("req_1", "GET", "/runs", 200, 0.001, "local")
    finally:
        logging.getLogger("tailrace").removeHandler(other)
    assert [vars(record)["request_id"] for record in records] == ["req_1"]
    assert "request_id=req_1" in out.getvalue()


async def test_a_higher_level_leaves_requests_out() -> None:
    out = io.StringIO()
    handler = configure(Redactor(), level="warning", stream=out)
    AccessLog(asyncio.get_running_loop()).add("req_1", "GET", "/runs", 200, 0.001, "local")
    handler.flush()
    assert out.getvalue() == ""


async def test_a_scrape_has_the_money_of_each_key(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        told = server.app.usage.on_priced
        assert told is not None
        told("ci", 0.25)
        told("ci", 0.5)
        assert (await scrape(server))['tailrace_key_usd_total{key="ci"}'] == 0.75
