"""`tailrace demo`: a minute without a key. A provider misbehaves on purpose, the server is killed, and nothing is lost.

Everything is real but the provider's model: the server, its log, the kill, the recovery. It runs on loopback in a
temporary home that is removed at the end.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING

from tailrace.cli.main import DONE, FAILED
from tailrace.system.own_program import typed

if TYPE_CHECKING:
    from rich.console import Console

    from tailrace.cli.demo.stage import Seen

PACE_S, FAST_PACE_S = 0.08, 0.005
SESSION = "demo"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fast", action="store_true", help="without the pauses between tokens")


def run(args: argparse.Namespace) -> int:
    """0 where nothing was lost or doubled, 1 otherwise. Raises `TailraceError`, `KeyboardInterrupt`."""
    return asyncio.run(_run(fast=args.fast))


async def _run(*, fast: bool) -> int:
    from rich.console import Console

    from tailrace.cli.demo.board import Board
    from tailrace.cli.demo.scenes import SCENES, play
    from tailrace.cli.demo.stage import opened_stage

    console = Console()
    console.print("A real server, a real log, and a provider that misbehaves on purpose. No key is needed.")
    seen: list[Seen] = []
    async with opened_stage(fast=fast) as stage:
        console.print(f"Watch the same runs on the page: {stage.url}/?session={SESSION}\n", highlight=False)
        board = Board(console)
        for number, scene in enumerate(SCENES, 1):
            with board.scene(number, scene.title, scene.question):
                one = await play(scene, stage, board, session=SESSION, pace_s=FAST_PACE_S if fast else PACE_S)
                board.finish()
                board.note(_verdict(one), "✓" if one.is_whole else "✗")
            seen.append(one)
        written = (stage.home / "notes.txt").exists()
    return _summary(console, seen, written=written)


def _verdict(one: Seen) -> str:
    if one.is_whole:
        return f"Shown equals stored: {len(one.seqs)} events, each once and in order."
    return f"Shown and stored differ: the run ended {one.status or 'never'} with {len(one.seqs)} events."


def _summary(console: Console, seen: list[Seen], *, written: bool) -> int:
    whole = sum(one.is_whole for one in seen)
    console.print(
        f"\n{whole} of {len(seen)} answers are stored exactly as they were shown; the file was written "
        f"{'once' if written else 'never'}.",
        highlight=False,
    )
    console.print(
        f"Next: {typed('init')} (a real model), {typed()} (chat), {typed('serve')} (the API and the page)",
        highlight=False,
    )
    return DONE if whole == len(seen) and written else FAILED
