"""`tailrace top`: the live runs of a journal and those that ended last, in whichever process; what waits for a person.

Looks once a second. `s` stops a run, `a` answers its approval. Where the output is no terminal, one frame is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import msgspec
from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.layout import FormattedTextControl, Layout
from prompt_toolkit.layout.containers import Window
from rich.cells import chop_cells
from rich.console import Console
from rich.text import Text

from tailrace.agent.session import last_words
from tailrace.app.timeline.overviews import overviews_of
from tailrace.app.timeline.run_overview import OWN_RECORDS, RunOverview
from tailrace.cli.chat.options import REQUESTER, SERVER_REQUESTER
from tailrace.cli.main import DONE
from tailrace.cli.own_journal import own_journal
from tailrace.cli.run_names import short_ids
from tailrace.cli.runs.console import console_for, place_of, print_note
from tailrace.cli.runs.table import cells_of, table
from tailrace.cli.screen.fitted_table import padded
from tailrace.cli.screen.sanitize import sanitized, sanitized_line
from tailrace.config.load import Config
from tailrace.errors import JournalError, TailraceError
from tailrace.events import ApprovalAsked
from tailrace.journal.memory import MemoryJournal
from tailrace.ports import ENDED, Journal, Run, RunState, Signal
from tailrace.runs.recovery import stop

EVERY_S = 1.0
LIVE: tuple[RunState, ...] = ("pending", "running", "parked")
MOST_LIVE, SHOWN_ENDED = 200, 8
COUNTED = (("running", "cyan"), ("asking", "bold yellow"), ("orphaned", "bold red"), ("parked", "bold red"))
KEYS = "↑↓ choose  s stop  a approve  q quit"
MIN_ROWS = 6  # that a frame needs beside a prompt
OWN_REQUESTERS = (REQUESTER, SERVER_REQUESTER)
_OTHER_SURFACES = ("editor", "python", "mcp")


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
    ended = [run for run in await journal.runs(states=tuple(ENDED), limit=4 * SHOWN_ENDED) if not _is_own(run)]
    shown = [*(run for run in live if not _is_own(run)), *ended[:SHOWN_ENDED]]
    return tuple(zip(shown, await overviews_of(journal, shown, now=time.time()), strict=True))


def _is_own(run: Run) -> bool:
    return run.new.kind in OWN_RECORDS


# ── one frame ────────────────────────────────────────────────────────────────────────────────────────────────


class TopState(msgspec.Struct, frozen=True):
    """What a frame is made of. `prompt` is a question to the user, or what became of the last key."""

    runs: tuple[tuple[Run, RunOverview], ...] = ()
    place: str = ""
    selected: str = ""  # the id of a run
    prompt: str = ""
    failure: str = ""  # why the journal could not be read

    @property
    def ids(self) -> list[str]:
        return [run.id for run, _ in self.runs]


def frame_lines(state: TopState, width: int, height: int | None) -> list[Text]:
    """Exactly `height` lines; None: as many as there are to show, without the keys."""
    states: list[str] = [overview.state for _, overview in state.runs]
    head = Text("tailrace", "bold")
    for name, style in COUNTED:
        head.append(f"  {states.count(name)} {name}", style if name in states else "dim")
    head.truncate(width, overflow="ellipsis")
    place = Text(padded(sanitized_line(state.failure or state.place, 300), width).rstrip())
    place.stylize("red" if state.failure else "dim")
    top, runs = [head, place, Text()], _run_lines(state, width) or [Text("no runs yet", "dim")]
    if height is None:
        return [*top, *runs]
    bottom = [Text(), *(prompt_lines(state.prompt, width) or [Text(padded(KEYS, width).rstrip(), "dim")])]
    room = max(1, height - len(top) - len(bottom) - 1)
    selected = state.ids.index(state.selected) if state.selected in state.ids else 0
    first = 1 + min(max(0, selected - room // 2), max(0, len(runs) - 1 - room))
    lines = [*top, runs[0], *runs[first : first + room]]
    return [*lines, *[Text()] * (height - len(lines) - len(bottom)), *bottom][:height]


def prompt_lines(prompt: str, width: int) -> list[Text]:
    """Whole, in as many lines as it needs."""
    rows = [row for line in prompt.expandtabs(4).split("\n") for row in chop_cells(line, width) or [""]]
    return [Text(row, "bold yellow") for row in rows] if prompt else []


def _run_lines(state: TopState, width: int) -> list[Text]:
    """The table of `tailrace runs`, with a mark before the selected one; empty where there is no run."""
    names = short_ids([run for run, _ in state.runs])
    rows = [cells_of(overview, name=names[run.id], cost=None, now=time.time()) for run, overview in state.runs]
    lines = table(rows, width - 2) if rows else []
    marks = ["  ", *("❯ " if run_id == state.selected else "  " for run_id in state.ids)]
    return [Text(mark, "bold cyan").append_text(line) for mark, line in zip(marks, lines, strict=False)]


# ── the screen ───────────────────────────────────────────────────────────────────────────────────────────────


class Dashboard:
    """The screen and its keys."""

    def __init__(self, journal: Journal, config: Config) -> None:
        self._journal = journal
        self.state = TopState(place=place_of(config))
        self.changed = asyncio.Event()  # set whenever the state changes
        self._confirm: Callable[[], Coroutine[Any, Any, str]] | None = None  # what `y` does
        self._work: set[asyncio.Task[None]] = set()
        self._app: Application[None] = Application(
            layout=Layout(Window(FormattedTextControl(self._drawn, show_cursor=False), wrap_lines=False)),
            key_bindings=self._keys(),
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
            runs = await newest_runs(self._journal)
        except JournalError as exc:
            self._change(failure=str(exc))
            return
        ids = [run.id for run, _ in runs]
        selected = self.state.selected if self.state.selected in ids else ids[0] if ids else ""
        self._change(runs=runs, selected=selected, failure="")

    def _change(self, **fields: object) -> None:
        self.state = msgspec.structs.replace(self.state, **fields)
        self.changed.set()

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
            lines = frame_lines(self.state, size.columns, size.rows)
            console.print(Text("\n").join(lines), soft_wrap=True, end="")
        return ANSI(drawn.get())

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        for names, step in ((("up", "k"), -1), (("down", "j"), 1)):
            for name in names:
                keys.add(name)(lambda _, step=step: self._move(step))
        keys.add("s")(lambda _: self._ask_to_stop())
        keys.add("a")(lambda _: self._ask_to_approve())
        keys.add("y")(lambda _: self._confirmed())
        keys.add("n")(lambda _: self._ask(""))
        keys.add("escape")(lambda _: self._ask(""))
        for name in ("q", "c-c", "c-d"):
            keys.add(name)(lambda event: event.app.exit(result=None))
        return keys

    def _move(self, step: int) -> None:
        if ids := self.state.ids:
            place = ids.index(self.state.selected) + step
            self._change(selected=ids[min(max(0, place), len(ids) - 1)])
            self._ask("")

    def _ask(self, prompt: str, confirm: Callable[[], Coroutine[Any, Any, str]] | None = None) -> None:
        self._confirm = confirm
        self._change(prompt=prompt)

    def _ask_to_stop(self) -> None:
        for run, overview in (each for each in self.state.runs if each[0].id == self.state.selected):
            if run.state in ENDED:
                self._ask("this run has ended")
            else:
                name = sanitized_line(overview.question or run.id, 60)
                self._ask(f"stop {name}?  y yes  n no", partial(self._stop, run.id))

    def _ask_to_approve(self) -> None:
        found = [overview for run, overview in self.state.runs if run.id == self.state.selected and overview.approvals]
        if not found:
            self._ask("this run waits for no approval")
            return
        asked = found[0].approvals[0]
        if asked.requester not in OWN_REQUESTERS:
            self._ask(_not_ours(asked))
            return
        where = f" in {sanitized_line(asked.directory, 100)}" if asked.directory else ""
        prompt = f"approve once{where}?  y yes  n no\n{sanitized(asked.command)}"
        size = self._app.output.get_size()
        if len(prompt_lines(prompt, size.columns)) > size.rows - MIN_ROWS:  # it is approved only where it is seen whole
            self._ask("the command does not fit this window: make it larger")
        else:
            self._ask(prompt, partial(self._approve, found[0].id, asked))

    def _confirmed(self) -> None:
        confirm, self._confirm = self._confirm, None
        if confirm is not None:
            task = asyncio.ensure_future(self._told(confirm()))
            self._work.add(task)
            task.add_done_callback(self._work.discard)

    async def _told(self, work: Coroutine[Any, Any, str]) -> None:
        try:
            self._change(prompt=await work)
        except TailraceError as exc:
            self._change(prompt=f"error: {sanitized_line(str(exc), 200)}")
        self._app.invalidate()

    async def _stop(self, run_id: str) -> str:
        owner, by = f"tailrace top {os.getpid()}", os.environ.get("USER") or REQUESTER
        found = await stop(self._journal, run_id, owner, at=time.time(), by=by, last_words=last_words)
        return found.state if found.state in ENDED else "stopping"

    async def _approve(self, run_id: str, asked: ApprovalAsked) -> str:
        payload = {"approval_id": asked.approval_id, "decision": "once"}
        await self._journal.signal(run_id, Signal("approval", payload, by=asked.requester))
        return "approved"


def _not_ours(asked: ApprovalAsked) -> str:
    """Who may answer instead, and where. A requester without a colon that is no surface is the name of a key."""
    who = sanitized_line(asked.requester_name or asked.requester, 60)
    if not asked.requester or ":" in asked.requester or asked.requester in _OTHER_SURFACES:
        return f"only {who or 'its requester'} may answer this, where it was asked"
    return f"only the key {who} may answer this: on the page of the server, or over HTTP, with that key"
