"""One run and 10,000 viewers behind an HTTP cache: how often the server is asked for each range.

    python -m bench stream_cache

Viewers read `/streams/runs/{id}` through nginx with its cache on: what the run has by then, then each piece by long
poll until the stream is closed. Every viewer must end with the whole log. The run and the server are in this process.

Without `proxy_cache_min_uses 0` nginx 1.22 lets every 1,024th request past its lock: it counts those that wait in ten
bits.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import socket
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp

from bench.table import Table
from tailrace.app import open_app
from tailrace.config.load import load
from tailrace.events import MessageChunk, RunFinished
from tailrace.ports import NewRun
from tailrace.server.app import serving

VIEWERS = 10_000
BEFORE, PIECES, EVERY_S = 500, 5, 5.0  # entries that the run has when the viewers come; pieces while they watch
CONFIG = """
{user} daemon off; pid {home}/nginx.pid; error_log {home}/error.log; worker_rlimit_nofile 20000;
events {{ worker_connections 16000; }}
http {{
  access_log off;
  proxy_cache_path {home}/cache keys_zone=streams:10m;
  proxy_temp_path {home}/t1; client_body_temp_path {home}/t2; fastcgi_temp_path {home}/t3;
  uwsgi_temp_path {home}/t4; scgi_temp_path {home}/t5;
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location /streams/ {{
      proxy_pass {origin};
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_cache streams;
      proxy_cache_lock on;
      proxy_cache_min_uses 0;
      proxy_cache_lock_timeout 120s;
      proxy_cache_lock_age 120s;
    }}
  }}
}}
"""


class Watched(NamedTuple):
    whole: int  # viewers that have every entry, once and in order
    answers: int
    asked: int  # requests that reached the server
    ranges: int  # addresses that the viewers asked for
    seconds: float


def main() -> Table:
    with tempfile.TemporaryDirectory() as home:
        seen = asyncio.run(watch(Path(home), VIEWERS))
    table = Table("one run behind nginx's cache", "viewers", "whole", "answers", "ranges", "asked of the server", "s")
    table.row(VIEWERS, seen.whole, seen.answers, seen.ranges, seen.asked, seen.seconds)
    return table


async def watch(home: Path, viewers: int, *, before: int = BEFORE, every_s: float = EVERY_S) -> Watched:
    (home / "config.yaml").write_text("store: {url: 'memory://'}\n", encoding="utf-8")
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    async with open_app(load({}, home), directory=home) as app, serving(app, port=0) as server:
        run, lease = await app.journal.start(NewRun("agent", {"text": "go"}), owner="bench")
        assert lease is not None
        app.journal.append(lease, [MessageChunk(f" {number}") for number in range(before)])
        await app.journal.commit(lease)
        connector = aiohttp.TCPConnector(limit=0)
        async with cache(home, server.url) as url, aiohttp.ClientSession(connector=connector) as client:
            ranges: Counter[str] = Counter()
            begin = time.perf_counter()
            watching = [
                asyncio.ensure_future(view(client, f"{url}/streams/runs/{run.id}", ranges)) for _ in range(viewers)
            ]
            for piece in range(PIECES):
                await asyncio.sleep(every_s)
                app.journal.append(lease, [MessageChunk(f" {before + piece}")])
                await app.journal.commit(lease)
            text = "".join(f" {number}" for number in range(before + PIECES))
            await app.journal.seal(lease, RunFinished("completed", text))
            seen = await asyncio.gather(*watching)
            seconds = time.perf_counter() - begin
        asked = sum(value for (path, _), value in server.pipeline.metrics.requests.values.items() if "streams" in path)
    return Watched(seen.count(before + PIECES + 2), sum(ranges.values()), int(asked), len(ranges), seconds)


async def view(client: aiohttp.ClientSession, url: str, ranges: Counter[str]) -> int:
    """How many entries this viewer has seen; 0 where one was missing, twice there or out of order."""
    address, seen = f"{url}?offset=-1", 0
    while True:
        ranges[address] += 1
        async with client.get(address, timeout=aiohttp.ClientTimeout(total=300)) as response:
            response.raise_for_status()
            body, headers = await response.read(), response.headers
        # of a long body the places are enough: decoding 10,000 of them would be what is measured
        count, last = body.count(b'{"seq":'), int(headers["Stream-Next-Offset"])
        seen += count
        if seen != last:
            return 0
        if "Stream-Closed" in headers:
            return seen
        live = f"&live=long-poll&cursor={headers.get('Stream-Cursor', '')}" if "Stream-Up-To-Date" in headers else ""
        address = f"{url}?offset={headers['Stream-Next-Offset']}{live}"


@asynccontextmanager
async def cache(home: Path, origin: str) -> AsyncGenerator[str, None]:
    """The address of an nginx that caches what `origin` allows."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    user = "user root;" if os.geteuid() == 0 else ""  # its worker: the directory is ours alone
    (home / "nginx.conf").write_text(CONFIG.format(home=home, port=port, origin=origin, user=user), encoding="utf-8")
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    process = await asyncio.create_subprocess_exec(program, "-p", str(home), "-c", str(home / "nginx.conf"))
    try:
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                if process.returncode is not None:
                    raise RuntimeError((home / "error.log").read_text(encoding="utf-8")) from None
                await asyncio.sleep(0.02)
            else:
                writer.close()
                break
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()
