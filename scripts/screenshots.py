"""Draws docs/screenshots/*.svg: a session in a real terminal, against a provider that answers by script.

python scripts/screenshots.py
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.sax.saxutils import escape

import pyte.graphics

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from cli.screen.vt import VirtualTerminal
from tailrace.testing.provider import FaultyProvider, Scenario, call, reply

# pyte knows no dim text; nothing of ours blinks, so that stands for it here.
pyte.graphics.TEXT.update({2: "+blink", 22: "-bold"})

TARGET = ROOT / "docs" / "screenshots"
COLUMNS, ROWS = 88, 34
DEMO_COLUMNS, DEMO_ROWS = 120, 37
CELL_WIDTH, CELL_HEIGHT, MARGIN = 8.4, 18, 16
BACKGROUND, FOREGROUND, DIM = "#14191f", "#d7dde4", "#79848f"
FONT = 'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="14"'
PALETTE = {
    "default": FOREGROUND,
    "black": "#2b323a",
    "red": "#e06c75",
    "green": "#98c379",
    "brown": "#e5c07b",
    "blue": "#61afef",
    "magenta": "#c678dd",
    "cyan": "#56b6c2",
    "white": FOREGROUND,
    "brightblack": DIM,
    "brightred": "#e06c75",
    "brightgreen": "#98c379",
    "brightbrown": "#e5c07b",
    "brightyellow": "#e5c07b",
    "brightblue": "#61afef",
    "brightmagenta": "#c678dd",
    "brightcyan": "#56b6c2",
    "brightwhite": "#ffffff",
}

ANSWER = """\
A **tailrace** is the channel that carries water away from the mill.

1. The *headrace* brings the water to the wheel.
2. The wheel takes what it needs.
3. The tailrace carries the stream on, to `wherever` it is needed next.

```python
async def tail(log: Journal, run: str, after: int = 0) -> AsyncIterator[Event]:
    async for batch in log.tail(run, after=after):  # everything new, in one go
        for entry in batch:
            yield entry.event
```

| part     | what it does      |
|----------|-------------------|
| headrace | brings the water  |
| wheel    | turns             |
| tailrace | carries it onward |

Nothing is lost on the way.
"""


SCRIPT = """\
#!/bin/sh
set -eu
rm -rf build
mkdir build
"""


def svg(terminal: VirtualTerminal) -> str:
    """The window as it is, one text element for each run of equal style."""
    screen = terminal.rows()
    columns = len(screen[0])
    width, height = columns * CELL_WIDTH + 2 * MARGIN, len(screen) * CELL_HEIGHT + 2 * MARGIN
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" {FONT}>',
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
    ]
    for row, cells in enumerate(screen):
        column = 0
        while column < columns:
            style = _style(cells[column])
            end = column + 1
            while end < columns and _style(cells[end]) == style:
                end += 1
            text = "".join(cell.data for cell in cells[column:end])
            x, y = MARGIN + column * CELL_WIDTH, MARGIN + (row + 0.75) * CELL_HEIGHT
            length = (end - column) * CELL_WIDTH
            if cells[column].reverse:
                top = MARGIN + row * CELL_HEIGHT
                out.append(
                    f'<rect x="{x:.1f}" y="{top}" width="{length:.1f}" height="{CELL_HEIGHT}" fill="{FOREGROUND}"/>'
                )
            if text.strip():
                out.append(
                    f'<text x="{x:.1f}" y="{y:.1f}" textLength="{length:.1f}" xml:space="preserve" {style}>'
                    f"{escape(text)}</text>"
                )
            column = end
    return "\n".join([*out, "</svg>", ""])


def _style(cell: pyte.screens.Char) -> str:
    if cell.reverse:
        return f'fill="{BACKGROUND}" font-weight="bold"'
    color = DIM if cell.blink and cell.fg == "default" else PALETTE.get(cell.fg, f"#{cell.fg}")
    return (
        f'fill="{color}"'
        + (' font-weight="bold"' if cell.bold else "")
        + (' font-style="italic"' if cell.italics else "")
        + (' text-decoration="underline"' if cell.underscore else "")
    )


async def shoot(terminal: VirtualTerminal, name: str) -> None:
    TARGET.mkdir(parents=True, exist_ok=True)
    (TARGET / f"{name}.svg").write_text(svg(terminal), encoding="utf-8")
    print(f"· docs/screenshots/{name}.svg")


@contextmanager
def quiet_home() -> Iterator[Path]:
    """A home directory whose name is no distraction in a picture. It must not be there yet."""
    home = Path(tempfile.gettempdir()) / "mill"
    home.mkdir()
    try:
        yield home
    finally:
        shutil.rmtree(home)


async def demo() -> None:
    """The end of `tailrace demo`: a tool call that breaks off, a server that is killed, and the verdict."""
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    env.pop("NO_COLOR", None)
    command = ["/bin/sh", "-c", "exec tailrace demo --fast"]
    async with VirtualTerminal(command, env, columns=DEMO_COLUMNS, rows=DEMO_ROWS) as terminal:
        await terminal.until("are stored exactly as they were shown")
        await terminal.until("the API and the page)")
        await shoot(terminal, "demo")


async def main() -> None:
    await demo()
    with quiet_home() as home:
        async with FaultyProvider() as server:
            (home / "config.yaml").write_text(
                json.dumps(
                    {
                        "model": {"provider": "scripted", "name": "scripted-1"},
                        "providers": {"scripted": {"dialect": "chat", "base_url": server.openai_url}},
                        "streaming": {"enabled": True},
                    }
                )
            )
            server.extend(
                Scenario(reply=reply(ANSWER), pace_s=0.03),
                reply("I will look what is there first.", call("terminal", {"command": "ls | wc -l; test -d build"})),
                reply(call("write_file", {"path": "clean.sh", "content": SCRIPT})),
                reply(
                    "The old build is in the way; I would remove it.", call("terminal", {"command": "rm -rf build/"})
                ),
                reply("Done: `build/` is gone."),
            )
            env = {**os.environ, "TAILRACE_HOME": str(home), "HOME": str(home)}
            env.pop("NO_COLOR", None)
            # The agent works in a directory of its own: it may remove what is there.
            (home / "work").mkdir()
            (home / "work" / "README.md").write_text("# A mill\n")
            (home / "work" / "clean.sh").write_text(SCRIPT.replace("set -eu\n", "").replace("build", "out"))
            command = f"cd {home / 'work'} && exec {sys.executable} -m tailrace chat"
            async with VirtualTerminal(["/bin/sh", "-c", command], env, columns=COLUMNS, rows=ROWS) as terminal:
                await session(terminal)


async def session(terminal: VirtualTerminal) -> None:
    await terminal.until(lambda: any(line.startswith("❯") for line in terminal.lines))
    await terminal.until("/help lists the commands")
    await shoot(terminal, "first")
    terminal.enter("What is a tailrace?")
    await terminal.until("async for batch")
    terminal.type("and now clean up the bu")
    await terminal.until(lambda: "❯ and now clean up the bu" in terminal.lines)
    await shoot(terminal, "streaming")
    await terminal.until("Nothing is lost on the way.")
    await terminal.until(lambda: not any("answering " in line for line in terminal.lines))
    await shoot(terminal, "answer")
    terminal.enter("ild")
    await terminal.until(lambda: any(_is_bright(row) for row in terminal.rows()))
    await shoot(terminal, "approval")
    terminal.type("o")
    await terminal.until("is gone")
    await terminal.until(lambda: not any("answering " in line for line in terminal.lines))
    await shoot(terminal, "tools")


def _is_bright(row: list[pyte.screens.Char]) -> bool:
    """The first choice of the approval, once its key counts."""
    return "".join(cell.data for cell in row).startswith("   o  once") and row[3].reverse


if __name__ == "__main__":
    asyncio.run(main())
