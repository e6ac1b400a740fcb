"""Kills a process that runs an instance with SIGKILL, once at every fact, and lets another one go on with it.

    python kill_instances.py DIRECTORY PROVIDER_URL

Each victim is a process of its own, forked from this one (which has no loop and no threads) so that starting it takes
milliseconds. In round K the first one dies at the K-th entry of its log: in one half of the rounds at the moment at
which somebody could first have seen it, in the other as soon as it was made, before it is durable. The second one
recovers the instance and ends it. Prints a line of JSON per round; round 0 is not disturbed.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from genai_prices import data as _prices  # noqa: F401 - imported for the victims: most of what each would do

from tailrace.config.sections import CallPolicy
from tailrace.events import AnyEvent, StepFinished
from tailrace.flows.definition.definition import Definition, parsed
from tailrace.flows.engine.service import FlowService
from tailrace.flows.steps.base import Handler, Handlers, Params, StepContext
from tailrace.flows.steps.llm_call import LlmCall
from tailrace.flows.steps.llm_params import ProviderParam
from tailrace.flows.steps.waits import Sleep
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.journal.stored.group_commit import StoredLog
from tailrace.messages import JsonObject
from tailrace.providers.attempt import Route
from tailrace.providers.call import Caller
from tailrace.providers.http.endpoint import Endpoint
from tailrace.providers.http.provider import HttpProvider
from tailrace.providers.transport.http1_transport import open_transport
from tailrace.providers.transport.port import Transport

When = Literal["seen", "made"]


def ask(name: str, prompt: str = "", **params: object) -> JsonObject:
    """The prompt says which step of which round asks: the provider's log tells them apart."""
    said = f"round {{{{input.round}}}} step {name} {prompt}"
    return {"type": "step", "id": name, "handler": "llm_call", "params": {"prompt": said, **params}}


DEFINITION: Definition = parsed(
    {
        "name": "ten",
        "blocks": [
            ask("s1"),
            {
                "type": "parallel",
                "id": "both",
                "branches": [[ask("s2"), ask("s3")], [ask("s4", provider="anthropic", stream=True)]],
            },
            {"type": "step", "id": "s5", "handler": "do", "params": {"got": "{{steps.s4.output.message.content}}"}},
            {
                "type": "for_each",
                "id": "each",
                "collection": "input.items",
                "max_concurrency": 2,
                "body": [
                    ask("s6", "{{item}}"),
                    {"type": "step", "id": "s7", "handler": "do", "params": {"n": "{{index}}"}},
                ],
            },
            ask("s8", stream=True),
            {"type": "step", "id": "s9", "handler": "sleep", "params": {"seconds": 0}},
            ask("s10", "{{steps.s8.output.message.content}}"),
        ],
    }
)


class Routes:
    """Every provider is the one server; each victim says who it is."""

    def __init__(self, url: str, transport: Transport, victim: str) -> None:
        self._url, self._transport, self._victim = url, transport, victim

    def check(self, ref: ProviderParam) -> None:
        self.route(ref)

    def may_use(self, variable: str) -> bool:
        return False

    def route(self, ref: ProviderParam) -> Route:
        dialect: Literal["chat", "anthropic"] = "anthropic" if ref.provider == "anthropic" else "chat"
        endpoint = Endpoint(
            name=ref.provider or "chat", dialect=dialect, base_url=self._url, headers={"x-victim": self._victim}
        )
        return Route(HttpProvider(endpoint, self._transport), "ok", CallPolicy())


class Mortal(SqliteJournal):
    """Dies as soon as the entry of that number is made."""

    dies_at = 0

    def _append_to(self, log: StoredLog, attempt: int, events: Sequence[AnyEvent]) -> int:
        seq = super()._append_to(log, attempt, events)
        if 0 < self.dies_at <= seq:
            os.kill(os.getpid(), signal.SIGKILL)
        return seq


class EchoParams(Params):
    got: str = ""
    n: int = 0


class Echo(Handler[EchoParams]):
    Params = EchoParams

    async def run(self, params: EchoParams, _step: StepContext) -> JsonObject:
        return {"got": params.got, "n": params.n}


async def live(database: Path, url: str, round_number: int, when: When, victim: str) -> str:
    """The first victim of a round starts the instance, the second one recovers it; what came of it."""
    journal = await Mortal.open(database)
    dies_at = round_number if victim == "first" else 0
    async with open_transport() as transport:
        handlers: Handlers = {
            "llm_call": LlmCall(Caller(), Routes(url, transport, victim)),
            "do": Echo(),
            "sleep": Sleep(),
        }
        async with FlowService(journal, handlers, owner=f"victim-{os.getpid()}", directory=database.parent) as flows:
            found = await journal.runs(kind="sequence")
            finished = []
            if found:
                run = found[0]
                finished = [e.event.block_id for e in await journal.facts(run.id) if isinstance(e.event, StepFinished)]
                await flows.recover()
            else:
                run = await flows.start(DEFINITION, {"round": f"{round_number:03}", "items": ["x", "y"]})
            if when == "made" and isinstance(journal, Mortal):
                journal.dies_at = dies_at
            async for batch in journal.tail(run.id):
                if when == "seen" and 0 < dies_at <= batch[-1].seq:
                    os.kill(os.getpid(), signal.SIGKILL)
            ended = await journal.get(run.id)
    await journal.close()
    assert ended.finished is not None
    return json.dumps(
        {
            "round": round_number,
            "when": when,
            "found": finished,
            "status": ended.finished.status,
            "output": ended.finished.output,
            "entries": ended.last_seq,
        }
    )


def victim(database: Path, url: str, round_number: int, when: When, name: str) -> str:
    """What it said, or nothing where it was killed."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ours)
        try:
            os.write(theirs, asyncio.run(live(database, url, round_number, when, name)).encode())
            os._exit(0)
        except BaseException as exc:  # noqa: BLE001 - the parent must hear of it
            print(f"{name} of round {round_number}: {exc!r}", file=sys.stderr)  # noqa: T201
            os._exit(1)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    assert status in (0, signal.SIGKILL), f"{name} of round {round_number} ended with {status}"
    return said


def main() -> None:
    directory, url = Path(sys.argv[1]), sys.argv[2]
    gc.collect()
    gc.freeze()  # a collection in a victim would copy the pages that it shares with this process
    undisturbed = victim(directory / "0.db", url, 0, "seen", "first")
    print(undisturbed, flush=True)  # noqa: T201
    halves: tuple[When, When] = ("seen", "made")
    for number in range(2, json.loads(undisturbed)["entries"] + 1):
        when = halves[number % 2]
        database = directory / f"{number}.db"
        said = victim(database, url, number, when, "first") or victim(database, url, number, when, "second")
        print(said, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
