"""Drawing an answer while it streams, measured as a ratio within one run.

    python -m bench render        (or: python bench/render.py)

The same answer of 10,000 characters in 2,000 chunks: drawn as the terminal draws it (settled blocks once, the open one
in every frame) and as a live display does that renders the whole text again at each chunk. CPU time of the process.
"""

from __future__ import annotations

import io
import time

from rich.console import Console
from rich.markdown import Markdown

from bench.table import Table
from tailrace.cli.screen.painter import Painter
from tailrace.cli.screen.transcript import Transcript
from tailrace.events import Entry, MessageChunk, MessageStop

CHARACTERS = 10_000
CHUNKS = 2_000
CHUNKS_PER_FRAME = 10  # 200 tokens a second at 20 frames: a fast model
WIDTH = 100

SECTION = """\
## Section {number}

The water **falls** on the wheel, the wheel turns the stone, and `grain.mill(speed={number})` makes flour of it. What
is left runs off through the tailrace, back to the river it came from.

1. Open the gate.
2. Wait for the wheel to turn at its own pace, which takes a while when the river is low.
3. Pour the grain.

```python
def grind(grain: float, speed: int = {number}) -> float:
    \"\"\"How much flour comes out.\"\"\"
    return grain * 0.72 if speed > 3 else 0.0
```

| grain | flour |
|-------|------:|
| rye   | {number} |
| wheat | 12 |

"""


def answer(characters: int = CHARACTERS) -> str:
    sections: list[str] = []
    while sum(map(len, sections)) < characters:
        sections.append(SECTION.format(number=len(sections) + 1))
    return "".join(sections)[:characters]


def chunks_of(text: str, count: int) -> list[str]:
    size = -(-len(text) // count)
    return [text[at : at + size] for at in range(0, len(text), size)]


def console() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, color_system="256", width=WIDTH)


def drawn(chunks: list[str], *, per_frame: int = CHUNKS_PER_FRAME) -> float:
    """CPU seconds to draw the answer as the terminal does."""
    painter, transcript = Painter(console()), Transcript(time.monotonic)
    before = time.process_time()
    for number, chunk in enumerate(chunks):
        transcript.apply(Entry(number + 1, MessageChunk(chunk)))
        if number % per_frame == 0:
            frame = transcript.next_update()
            painter.ansi(painter.lines(frame.settled, WIDTH))
            painter.lines(frame.moving, WIDTH)
    transcript.apply(Entry(len(chunks) + 1, MessageStop(final=True)))
    painter.ansi(painter.lines(transcript.next_update().settled, WIDTH))
    return time.process_time() - before


def drawn_anew(chunks: list[str], *, every: int) -> float:
    """CPU seconds to render the whole text so far at every chunk, from a sample of every so many."""
    screen, so_far = console(), ""
    spent = 0.0
    for number, chunk in enumerate(chunks):
        so_far += chunk
        if number % every == 0:
            before = time.process_time()
            screen.print(Markdown(so_far))
            spent += time.process_time() - before
    return spent * every


def main() -> Table:
    text = answer()
    table = Table("CPU to draw a streamed answer", "how", "characters", "chunks", "CPU s", "ratio")
    drawn(chunks_of(text, CHUNKS))  # grammars of the highlighter are loaded once
    ours = drawn(chunks_of(text, CHUNKS))
    longer = drawn(chunks_of(answer(4 * CHARACTERS), 4 * CHUNKS))
    anew = drawn_anew(chunks_of(text, CHUNKS), every=20)
    table.row("settled blocks once", CHARACTERS, CHUNKS, ours, 1.0)
    table.row("four times the answer", 4 * CHARACTERS, 4 * CHUNKS, longer, longer / ours)
    table.row("everything at each chunk", CHARACTERS, CHUNKS, anew, anew / ours)
    return table


if __name__ == "__main__":
    print(main())
