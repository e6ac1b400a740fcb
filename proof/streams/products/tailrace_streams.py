"""Tailrace, watched as Durable Streams by that protocol's own client: it keeps the offset and reconnects by itself."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from typing import Any, ClassVar

from proof.streams.http import Broken
from proof.streams.product import ENVIRONMENTS, PROGRAMS, Cleared, Ended, Place, Product, Sight, Text
from proof.streams.products.tailrace import HOW, TailraceWorkers

FAST_BUFFER = 2**24


class TailraceStreams(TailraceWorkers):
    """The first viewer of a run waits by long poll, each later one takes server-sent events."""

    name = "tailrace-streams"
    page = "docs/http.md"
    setup = "as tailrace-workers; every viewer is @durable-streams/client, first with long-poll, then with sse"
    packages = ("npm:@durable-streams/client@0.2.7",)
    lacks: ClassVar = {}

    @classmethod
    def versions(cls) -> str:
        return f"{TailraceWorkers.versions()}, {Product.versions.__func__(cls)}"  # type: ignore[attr-defined]

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._watched: set[str] = set()

    async def attach(self, run: str, cursor: str, *, slow: bool = False) -> AsyncGenerator[Sight, None]:
        process = await asyncio.create_subprocess_exec(
            "node",
            str(PROGRAMS / "durable_stream_viewer.mjs"),
            self._url(run).replace("/runs/", "/streams/runs/"),
            cursor or "-1",
            "sse" if run in self._watched else "long-poll",
            env={"PATH": os.environ["PATH"], "ENVIRONMENT": str(ENVIRONMENTS / self.name)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=FAST_BUFFER,
        )
        self._watched.add(run)
        texts: list[tuple[object, str]] = []
        assert process.stdout is not None
        try:
            async for line in process.stdout:
                batch: dict[str, Any] = json.loads(line)
                for sight in _sights(batch["items"], str(batch["offset"]), texts):
                    yield sight
                if batch.get("closed"):  # nothing follows, and the viewer has the entry that says how it ended
                    yield Ended((await self.kept(run)).status)
                    return
            if await process.wait():
                raise Broken(f"the client gave up: {process.returncode}")
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _sights(items: Iterable[dict[str, Any]], offset: str, texts: list[tuple[object, str]]) -> list[Sight]:
    """A batch is shown at once, and the offset is the one after it. `texts` is what this connection has, by attempt."""
    shown, cleared, ends = "", list[Sight](), list[Sight]()
    for item in items:
        match item["type"]:
            case "message_chunk":
                texts.append((item["attempt"], str(item["text"])))
                shown += str(item["text"])
            case "attempt_discarded":
                texts[:] = [(attempt, text) for attempt, text in texts if attempt != item["attempt"]]
                shown, cleared = "".join(text for _, text in texts), [Cleared()]
            case "run_finished":
                ends = [Ended(HOW[str(item["status"])])]
            case _:
                continue
    return [*cleared, Text(shown, offset), *ends]
