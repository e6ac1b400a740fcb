"""A home whose chats run in a terminal, and what a person waits for there."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from cli.screen.vt import VirtualTerminal
from tailrace.testing.provider import FaultyProvider

MARKDOWN = """\
# The mill

Water **falls** on the wheel. 日本語の文章は幅が二倍になります。それでも折り返しは正しく、行は窓の中に収まります。

1. gate
2. wheel

```python
def grind(grain: float) -> float:
    return grain * 0.72
```

| grain | flour |
|-------|------:|
| rye   | 7 |

That is all.
"""


class Home:
    """A home directory whose config names the provider."""

    def __init__(self, path: Path, server: FaultyProvider) -> None:
        self.path = path
        self.server = server
        self.config: dict[str, Any] = {
            "model": {"provider": "faulty", "name": "ok"},
            "providers": {"faulty": {"dialect": "chat", "base_url": server.openai_url, "backoff_s": 0.001}},
            "streaming": {"enabled": True},
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TAILRACE_", "HERMES_"))}
        self.env = {**kept, "TAILRACE_HOME": str(path)}
        self.env.pop("NO_COLOR", None)

    def command(self, *args: str) -> list[str]:
        (self.path / "config.yaml").write_text(json.dumps(self.config))
        return [sys.executable, "-m", "tailrace", "chat", *args]

    def terminal(self, *args: str, columns: int = 80, rows: int = 24) -> VirtualTerminal:
        return VirtualTerminal(self.command(*args), self.env, columns=columns, rows=rows)


async def ready(terminal: VirtualTerminal) -> None:
    await terminal.until(lambda: any(line.startswith("❯") for line in terminal.lines))


async def answered(terminal: VirtualTerminal, messages: int = 1) -> None:
    """So many messages are there, and nothing runs."""

    def there() -> bool:
        marks = sum(line.startswith("● ") for line in terminal.text.split("\n"))
        return marks > messages and not any("answering " in line for line in terminal.lines)  # the first is ours

    await terminal.until(there)


def last_word(terminal: VirtualTerminal) -> int:
    """The number of the last word of a long answer that is on the screen. One frame may show hundreds of new words: a
    test waits for the last one before a stall, or for any later one."""
    return max((int(number) for number in re.findall(r"word(\d+)", terminal.text)), default=-1)


def body(text: str) -> list[str]:
    """From the first question to the words of farewell, without the borders of boxes, which have times."""
    lines = text.split("\n")
    first = next(at for at, line in enumerate(lines) if line.startswith("❯ "))
    last = next(at for at, line in enumerate(lines) if "go on with this conversation" in line)
    return [line for line in lines[first:last] if not line.startswith(("╭", "╰"))]
