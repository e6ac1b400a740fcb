"""What is counted, and how it is shown."""

from __future__ import annotations

import io
import json
import logging
import re
from pathlib import Path

import pytest

from server.http_server import RunningServer, running_server
from tailrace.agent.safety.redact import Redactor
from tailrace.app.telemetry.logging_setup import configure
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


def test_the_text_of_each_kind() -> None:
    counter, gauge = Counter("c_total", "C.", ("a", "b")), Gauge("g", "G.")
    counter.inc('x"\\\n', "y", by=2)
    gauge.inc()
    gauge.dec()
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
