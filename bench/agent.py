"""What a turn costs on top of the bare model call, and whether many turns at once wait for each other."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from bench.table import Table
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import App, open_app
from tailrace.app.models import named
from tailrace.config.load import load
from tailrace.events import MessageChunk
from tailrace.messages import ModelRequest, user
from tailrace.ports import Durability
from tailrace.testing.provider import FaultyProvider, Scenario, reply

ROUNDS = 200
ANSWER = Scenario(reply=reply("Water leaves the mill by the tailrace and goes wherever it is needed."))


async def bare_calls(app: App) -> float:
    routes = app.models.routes(named(app.config, ""))
    began = time.process_time()
    for _ in range(ROUNDS):
        await app.caller.complete(ModelRequest("ok", (user("Where does it go?"),)), routes)
    return (time.process_time() - began) / ROUNDS


async def turns(app: App, durability: Durability) -> float:
    began = time.process_time()
    for _ in range(ROUNDS):
        run = await app.agents.submit(TurnSpec(user("Where does it go?")), durability=durability)
        await app.agents.finished(run.id)
    return (time.process_time() - began) / ROUNDS


async def first_token_s(app: App) -> float:
    began = time.perf_counter()
    run = await app.agents.submit(TurnSpec(user("Where does it go?")))
    async for batch in app.journal.tail(run.id):
        if any(isinstance(entry.event, MessageChunk) for entry in batch):
            return time.perf_counter() - began
    raise AssertionError("no token came")


async def measure(home: Path) -> list[Table]:
    rounds = ROUNDS * 8 + 600
    async with FaultyProvider([ANSWER] * rounds) as server:
        text = f"model: {{provider: f, name: ok}}\nproviders: {{f: {{dialect: chat, base_url: '{server.url}'}}}}\n"
        (home / "config.yaml").write_text(text, encoding="utf-8")
        async with open_app(load({}, home), directory=home) as app:
            await bare_calls(app)
            calls = min([await bare_calls(app) for _ in range(2)])
            memory = min([await turns(app, "memory") for _ in range(2)])
            whole = min([await turns(app, "committed") for _ in range(2)])
            one = statistics.median([await first_token_s(app) for _ in range(20)])
            many = statistics.median(await asyncio.gather(*(first_token_s(app) for _ in range(200))))
    cost = Table(
        "A turn without tools, CPU per turn (the provider's share included in both)", "what", "ms", "added ms", "ratio"
    )
    for what, seconds in (("the bare call", calls), ("a turn, in memory", memory), ("a turn, committed", whole)):
        cost.row(what, f"{seconds * 1e3:.2f}", f"{(seconds - calls) * 1e3:.2f}", f"{seconds / calls:.2f}")
    wait = Table("Time to the first token, median", "turns at once", "ms", "ms per turn at once")
    wait.row("1", f"{one * 1e3:.2f}", f"{one * 1e3:.2f}")
    wait.row("200", f"{many * 1e3:.2f}", f"{many * 1e3 / 200:.2f}")
    return [cost, wait]


def main() -> list[Table]:
    with tempfile.TemporaryDirectory() as home:
        return asyncio.run(measure(Path(home)))
