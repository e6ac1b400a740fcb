"""The slash commands about what was said: its cost, asking again, copying, saving, summarising, one tool in full."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Final

from tailrace.agent.session import new_session
from tailrace.cli.chat.slash.call import SlashCall
from tailrace.cli.screen.markdown_blocks import blocks_of
from tailrace.errors import TailraceError
from tailrace.providers.prices import load_prices
from tailrace.system.extras import install_command

MAX_COPIED_BYTES: Final = 74_994  # of base64: more is dropped by several terminals
_NAME: Final = re.compile(r"[^\w.-]+")


async def cost(call: SlashCall) -> None:
    await load_prices()
    await call.conversation.count_spending()
    spending = call.conversation.spending
    call.surface.notify(spending.table())
    if spending.calls and spending.cost_usd is None and not _has_prices():
        call.surface.notify(f"prices come with an extra: {install_command('prices')}")


def _has_prices() -> bool:
    from importlib.util import find_spec

    return find_spec("genai_prices") is not None


async def clear(call: SlashCall) -> None:
    await call.surface.interrupt()
    before = call.conversation.session
    call.conversation.switch(session=new_session())
    await call.conversation.count_spending()
    call.surface.clear()
    call.surface.notify(f"new session; /resume {before} goes back to the one before")


async def retry(call: SlashCall) -> None:
    await call.surface.interrupt()
    await call.surface.submit(await call.conversation.retried())


async def compact(call: SlashCall) -> None:
    await call.surface.interrupt()
    spec = await call.conversation.compacting()
    call.surface.notify("summarising; from your next message on, this and the newest exchange stand for the rest")
    await call.surface.submit(spec, with_question=False)


async def copy(call: SlashCall) -> None:
    answer = await call.conversation.last_answer()
    what = "the answer"
    if call.argument == "code":
        code = [block.text for block in blocks_of(answer) if block.kind == "code"]
        if not code:
            raise TailraceError("the last answer has no code")
        answer, what = code[-1], "the code"
    elif call.argument:
        raise TailraceError("/copy copies the last answer, /copy code its last listing")
    if not answer:
        raise TailraceError("there is no answer to copy")
    if len(answer.encode()) * 4 // 3 > MAX_COPIED_BYTES:
        raise TailraceError(f"{what} is too long for a terminal's clipboard: /save FILE writes it")
    if not call.surface.copy(answer):
        raise TailraceError("this terminal has no clipboard to copy to")
    call.surface.notify(f"copied {what}, {len(answer):,} characters (where the terminal allows OSC 52)")


async def save(call: SlashCall) -> None:
    text = await call.conversation.as_markdown()
    if not text:
        raise TailraceError("there is nothing to save yet")
    name = call.argument or f"tailrace-{_NAME.sub('-', call.conversation.session)}.md"
    path = await asyncio.to_thread(_write_new, call.conversation.app.directory, name, f"{text}\n")
    call.surface.notify(f"saved {text.count(chr(10)) + 1} lines to {path}")


def _write_new(directory: Path, name: str, text: str) -> Path:
    """Raises `TailraceError`. A file that is there stays."""
    path = directory / name
    try:
        path = directory / Path(name).expanduser()
        with path.open("x", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except FileExistsError:
        raise TailraceError(f"{path} is there already: /save FILE names another") from None
    except (OSError, RuntimeError, ValueError) as exc:  # also: no such user after "~", a NUL
        raise TailraceError(f"{path} cannot be written: {getattr(exc, 'strerror', None) or exc}") from exc
    return path


async def show(call: SlashCall) -> None:
    number = call.argument.removeprefix("#")
    if number and not number.isdecimal():
        raise TailraceError("/show N: the number is at the end of the tool's line")
    if not call.surface.expand(int(number) if number else None):
        raise TailraceError(f"there is no tool #{number} to show" if number else "no tool has run yet")
