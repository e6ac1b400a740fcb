"""What a server on this machine tells of itself by `/metrics`: viewers, requests, and how its providers do."""

from __future__ import annotations

import asyncio
import re

import aiohttp
import msgspec

from tailrace.config.load import Config

TIMEOUT_S = 0.5
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class ServerMetrics(msgspec.Struct, frozen=True):
    """Of one server, its workers together. `outcomes` counts model calls by provider and outcome. `of_other_home`: what
    listens there has another store, and nothing more is known of it."""

    address: str
    viewers: int = 0
    running: int = 0
    requests: int = 0
    outcomes: dict[tuple[str, str], int] = {}
    stalls: dict[str, int] = {}
    of_other_home: bool = False
    platforms_down: tuple[str, ...] = ()  # that it serves and is not connected to


async def fetch_metrics(config: Config) -> ServerMetrics | None:
    """None where no server of this config answers, or its key opens nothing here."""
    server = config.server
    if server.port == 0:
        return None
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "localhost": "127.0.0.1"}.get(server.host, server.host)  # noqa: S104
    address = f"{host}:{server.port}"
    key = config.environment.get(server.key_env) or ""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        async with (
            asyncio.timeout(TIMEOUT_S),
            aiohttp.ClientSession() as session,
            session.get(f"http://{address}/metrics", headers=headers) as answer,
        ):
            if answer.status != 200:
                return None
            if answer.headers.get("X-Tailrace-Store", config.store_digest) != config.store_digest:
                return ServerMetrics(address, of_other_home=True)
            return parse_metrics(await answer.text(), address)
    except (TimeoutError, aiohttp.ClientError, OSError, UnicodeDecodeError):
        return None


def parse_metrics(text: str, address: str) -> ServerMetrics | None:
    """None for what is no scrape of ours."""
    gauges: dict[str, int] = {}
    outcomes: dict[tuple[str, str], int] = {}
    stalls: dict[str, int] = {}
    down: list[str] = []
    for line in text.splitlines():
        found = _SAMPLE.match(line)
        if found is None:
            continue
        name, labels, value = found[1], dict(_LABEL.findall(found[2] or "")), int(float(found[3]))
        if name == "tailrace_model_calls_total":
            outcomes[labels.get("provider", ""), labels.get("outcome", "")] = value
        elif name == "tailrace_stalls_total":
            stalls[labels.get("provider", "")] = value
        elif name == "tailrace_platform_down":
            down += [labels.get("platform", "")] if value else []
        elif not labels:
            gauges[name] = value
    if "tailrace_viewers" not in gauges:
        return None
    return ServerMetrics(
        address,
        gauges["tailrace_viewers"],
        gauges.get("tailrace_runs_running", 0),
        gauges.get("tailrace_requests_in_flight", 0),
        outcomes,
        stalls,
        platforms_down=tuple(sorted(down)),
    )
