"""`tailrace top`: the live runs of a journal, the health of providers, what waits for a person.

Looks once a second at what is new. Enter tails a run, `s` stops one, `a` answers its approval. Where the output is no
terminal, one frame is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import FormattedTextControl, Layout
from prompt_toolkit.layout.containers import Window
from rich.console import Console
from rich.text import Text

from tailrace.agent.session import last_words
from tailrace.cli.chat.options import REQUESTER, SERVER_REQUESTER
from tailrace.cli.chat.tty_approval import read_line
from tailrace.cli.main import DONE
from tailrace.cli.own_journal import own_journal
from tailrace.cli.runs.console import console_for, place_of, print_note
from tailrace.cli.runs.live_runs import LiveRun, LiveRuns
from tailrace.cli.runs.tail import tail_run
from tailrace.cli.runs.top_frame import MIN_ROWS, TopState, frame_lines, prompt_lines
from tailrace.cli.screen.sanitize import sanitized, sanitized_line
from tailrace.config.load import Config
from tailrace.errors import JournalError, TailraceError
from tailrace.events import ApprovalAsked
from tailrace.journal.memory import MemoryJournal
from tailrace.ports import ENDED, Journal, Run, Signal
from tailrace.runs.recovery import stop

EVERY_S = 1.0
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
            return
        if args.once or not (sys.stdout.isatty() and sys.stdin.isatty()):
            await _print_once(journal, config)
            return
        dashboard = Dashboard(journal, config)
        while (chosen := await dashboard.show()) is not None:
            await _tail(journal, chosen)


async def _print_once(journal: Journal, config: Config) -> None:
    live = LiveRuns(journal)
    look = await live.look(time.time())
    if look.counted("running"):  # how fast they are takes two looks
        await asyncio.sleep(EVERY_S)
        look = await live.look(time.time())
    console = console_for(sys.stdout)
    width = console.width if console.is_terminal else 120
    for line in frame_lines(TopState(look, place_of(config)), width=width, height=None, keys=False):
        console.print(line, soft_wrap=True)


async def _tail(journal: Journal, chosen: Run) -> None:
    """In the plain terminal, until the run has ended and Enter is pressed, or Ctrl-C; then the dashboard comes back."""
    print_note(f"tail {chosen.id}; Ctrl-C goes back")
    tailing = asyncio.ensure_future(_tail_and_wait(journal, chosen))
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(2, tailing.cancel)
    try:
        await tailing
    except asyncio.CancelledError:
        return
    finally:
        loop.remove_signal_handler(2)


async def _tail_and_wait(journal: Journal, chosen: Run) -> None:
    try:
        await tail_run(journal, chosen)
    except TailraceError as exc:
        print_note(f"error: {exc}")
    print_note("Enter goes back")
    await read_line(sys.stdin.fileno())


class Dashboard:
    """The screen and its keys. `show` returns the run to tail, or None to quit."""

    def __init__(self, journal: Journal, config: Config) -> None:
        self._journal = journal
        self._live = LiveRuns(journal)
        self.state = TopState(place=place_of(config))
        self.changed = asyncio.Event()  # set whenever the state changes
        self._confirm: Callable[[], None] | None = None  # what `y` does
        self._work: set[asyncio.Task[None]] = set()
        self._app: Application[Run | None] = Application(
            layout=Layout(Window(FormattedTextControl(self._drawn, show_cursor=False), wrap_lines=False)),
            key_bindings=self._keys(),
            full_screen=True,
        )

    async def show(self) -> Run | None:
        await self._look()
        looking = asyncio.ensure_future(self._look_again())
        try:
            return await self._app.run_async(handle_sigint=True)
        except KeyboardInterrupt:
            return None
        finally:
            looking.cancel()

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            await self._look()
            self._app.invalidate()

    async def _look(self) -> None:
        try:
            look = await self._live.look(time.time())
        except JournalError as exc:
            self._change(failure=str(exc))
            return
        ids = [each.run.id for each in look.runs]
        selected = self.state.selected if self.state.selected in ids else ids[0] if ids else ""
        self._change(look=look, selected=selected, failure="")

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
            lines = frame_lines(self.state, width=size.columns, height=size.rows)
            console.print(Text("\n").join(lines), soft_wrap=True, end="")
        return ANSI(drawn.get())

    # ── keys ──

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        for names, step in ((("up", "k"), -1), (("down", "j"), 1)):
            for name in names:
                keys.add(name)(lambda _, step=step: self._move(step))
        keys.add("enter")(self._enter)
        keys.add("s")(lambda _: self._ask_to_stop())
        keys.add("a")(lambda _: self._ask_to_approve())
        keys.add("y")(lambda _: self._confirmed())
        keys.add("n")(lambda _: self._cancelled())
        keys.add("escape")(lambda _: self._cancelled())
        for name in ("q", "c-c", "c-d"):
            keys.add(name)(lambda event: event.app.exit(result=None))
        return keys

    @property
    def selected(self) -> LiveRun | None:
        return next((each for each in self.state.look.runs if each.run.id == self.state.selected), None)

    def _move(self, step: int) -> None:
        ids = [each.run.id for each in self.state.look.runs]
        if ids:
            place = ids.index(self.state.selected) if self.state.selected in ids else 0
            self._change(selected=ids[min(max(0, place + step), len(ids) - 1)], prompt="")
            self._confirm = None

    def _enter(self, event: KeyPressEvent) -> None:
        if (chosen := self.selected) is not None:
            event.app.exit(result=chosen.run)

    def _ask_to_stop(self) -> None:
        chosen = self.selected
        if chosen is None or chosen.run.state in ENDED:
            self._change(prompt="this run has ended" if chosen is not None else "")
            return
        self._confirm = lambda: self._begin(self._stop(chosen.run))
        self._change(prompt=f"stop {sanitized_line(chosen.overview.question or chosen.run.id, 60)}?  y yes  n no")

    def _ask_to_approve(self) -> None:
        chosen = self.selected
        if chosen is None or not chosen.overview.approvals:
            self._change(prompt="this run waits for no approval")
            return
        asked = chosen.overview.approvals[0]
        if asked.requester not in OWN_REQUESTERS:
            self._change(prompt=_not_ours(asked))
            return
        where = f" in {sanitized_line(asked.directory, 100)}" if asked.directory else ""
        prompt = f"approve once{where}?  y yes  n no\n{sanitized(asked.command)}"
        size = self._app.output.get_size()
        if len(prompt_lines(prompt, size.columns)) > size.rows - MIN_ROWS:  # it is approved only where it is seen whole
            self._change(prompt="the command does not fit this window: make it larger")
            return
        self._confirm = lambda: self._begin(self._approve(chosen.run.id, asked))
        self._change(prompt=prompt)

    def _confirmed(self) -> None:
        confirm, self._confirm = self._confirm, None
        if confirm is not None:
            confirm()

    def _cancelled(self) -> None:
        self._confirm = None
        self._change(prompt="")

    # ── work ──

    def _begin(self, work: Coroutine[Any, Any, str]) -> None:
        task = asyncio.ensure_future(self._told(work))
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _told(self, work: Coroutine[Any, Any, str]) -> None:
        try:
            self._change(prompt=await work)
        except TailraceError as exc:
            self._change(prompt=f"error: {sanitized_line(str(exc), 200)}")
        self._app.invalidate()

    async def _stop(self, chosen: Run) -> str:
        self._change(prompt="stopping …")
        owner, by = f"tailrace top {os.getpid()}", os.environ.get("USER") or REQUESTER
        found = await stop(self._journal, chosen.id, owner, at=time.time(), by=by, last_words=last_words)
        return f"{found.state if found.state in ENDED else 'stopping'}"

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
