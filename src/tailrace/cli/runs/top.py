"""`tailrace top`: the live runs of a journal and those that ended last, in whichever process; what waits for a person.

Looks once a second. Where the output is no terminal, one frame is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import time

import msgspec
from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.layout import FormattedTextControl, Layout
from prompt_toolkit.layout.containers import Window
from rich.console import Console
from rich.text import Text

from tailrace.app.timeline.overviews import overviews_of
from tailrace.app.timeline.run_overview import OWN_RECORDS, RunOverview
from tailrace.cli.main import DONE
from tailrace.cli.own_journal import own_journal
from tailrace.cli.run_names import short_ids
from tailrace.cli.runs.console import console_for, place_of, print_note
from tailrace.cli.runs.table import cells_of, table
from tailrace.cli.screen.fitted_table import padded
from tailrace.cli.screen.sanitize import sanitized_line
from tailrace.config.load import Config
from tailrace.errors import JournalError
from tailrace.journal.memory import MemoryJournal
from tailrace.ports import ENDED, Journal, Run, RunState

EVERY_S = 1.0
LIVE: tuple[RunState, ...] = ("pending", "running", "parked")
MOST_LIVE, SHOWN_ENDED = 200, 8
COUNTED = (("running", "cyan"), ("asking", "bold yellow"), ("orphaned", "bold red"), ("parked", "bold red"))
KEYS = "q quit   tailrace stop RUN stops one"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="print one frame and end, as where there is no terminal")


def run(args: argparse.Namespace, config: Config) -> int:
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_top(args, config))
    return DONE


async def _top(args: argparse.Namespace, config: Config) -> None:
    if config.database is not None and not config.database.exists():
        print_note(f"no runs yet in {config.database}")
        return
    async with own_journal(config) as journal:
        if isinstance(journal, MemoryJournal):  # stands for a database without a journal
            print_note(f"no runs yet in {place_of(config)}")
        elif args.once or not (sys.stdout.isatty() and sys.stdin.isatty()):
            console = console_for(sys.stdout)
            width = console.width if console.is_terminal else 120
            for line in frame_lines(TopState(await newest_runs(journal), place_of(config)), width, None):
                console.print(line, soft_wrap=True)
        else:
            await Dashboard(journal, config).show()


async def newest_runs(journal: Journal) -> tuple[tuple[Run, RunOverview], ...]:
    """The live ones first, the newest of each first."""
    live = await journal.runs(states=LIVE, limit=MOST_LIVE)
    ended = [
        run for run in await journal.runs(states=tuple(ENDED), limit=4 * SHOWN_ENDED) if run.new.kind not in OWN_RECORDS
    ]
    shown = [*(run for run in live if run.new.kind not in OWN_RECORDS), *ended[:SHOWN_ENDED]]
    return tuple(zip(shown, await overviews_of(journal, shown, now=time.time()), strict=True))


# ── one frame ────────────────────────────────────────────────────────────────────────────────────────────────


class TopState(msgspec.Struct, frozen=True):
    """What a frame is made of."""

    runs: tuple[tuple[Run, RunOverview], ...] = ()
    place: str = ""
    failure: str = ""  # why the journal could not be read


def frame_lines(state: TopState, width: int, height: int | None) -> list[Text]:
    """Exactly `height` lines; None: as many as there are to show, without the keys."""
    states: list[str] = [overview.state for _, overview in state.runs]
    head = Text("tailrace", "bold")
    for name, style in COUNTED:
        head.append(f"  {states.count(name)} {name}", style if name in states else "dim")
    head.truncate(width, overflow="ellipsis")
    place = Text(padded(sanitized_line(state.failure or state.place, 300), width).rstrip())
    place.stylize("red" if state.failure else "dim")
    lines = [head, place, Text(), *(_run_lines(state, width) or [Text("no runs yet", "dim")])]
    if height is None:
        return lines
    lines = lines[: max(0, height - 2)]
    keys = [Text(), Text(padded(KEYS, width).rstrip(), "dim")]
    return [*lines, *[Text()] * (height - len(lines) - len(keys)), *keys][:height]


def _run_lines(state: TopState, width: int) -> list[Text]:
    """The table of `tailrace runs`; empty where there is no run."""
    names = short_ids([run for run, _ in state.runs])
    rows = [cells_of(overview, name=names[run.id], cost=None, now=time.time()) for run, overview in state.runs]
    return table(rows, width) if rows else []


# ── the screen ───────────────────────────────────────────────────────────────────────────────────────────────


class Dashboard:
    """The screen, drawn anew every second."""

    def __init__(self, journal: Journal, config: Config) -> None:
        self._journal = journal
        self._state = TopState(place=place_of(config))
        keys = KeyBindings()
        for name in ("q", "c-c", "c-d"):
            keys.add(name)(lambda event: event.app.exit(result=None))
        self._app: Application[None] = Application(
            layout=Layout(Window(FormattedTextControl(self._drawn, show_cursor=False), wrap_lines=False)),
            key_bindings=keys,
            full_screen=True,
        )

    async def show(self) -> None:
        await self._look()
        looking = asyncio.ensure_future(self._look_again())
        try:
            await self._app.run_async(handle_sigint=True)
        finally:
            looking.cancel()

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            await self._look()
            self._app.invalidate()

    async def _look(self) -> None:
        try:
            self._state = msgspec.structs.replace(self._state, runs=await newest_runs(self._journal), failure="")
        except JournalError as exc:
            self._state = msgspec.structs.replace(self._state, failure=str(exc))

    def _drawn(self) -> ANSI:
        size = self._app.output.get_size()
        console = Console(
            width=size.columns,
            force_terminal=True,
            no_color=bool(os.environ.get("NO_COLOR")),
            highlight=False,
            markup=False,
            color_system="standard",
        )
        with console.capture() as drawn:
            lines = frame_lines(self._state, size.columns, size.rows)
            console.print(Text("\n").join(lines), soft_wrap=True, end="")
        return ANSI(drawn.get())
