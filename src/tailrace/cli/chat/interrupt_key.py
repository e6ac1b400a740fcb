"""What Ctrl-C does: it ends what runs, or clears what is typed; pressed again, it leaves.

Pure. No clock decides: the second press counts for as long as the screen says so, however slow the terminal is.
"""

from __future__ import annotations

from typing import Literal

Interrupt = Literal["leave", "end command", "stop turn", "clear input", "warn"]


class InterruptKey:
    """Call `forget` when what the first press was for is over: the turn or the command ended, or a line was entered."""

    def __init__(self) -> None:
        self.leaves_next = False

    def press(self, *, command_runs: bool, turn_runs: bool, typed: bool) -> Interrupt:
        if self.leaves_next and (command_runs or turn_runs or not typed):
            return "leave"
        self.leaves_next = command_runs or turn_runs or not typed
        if command_runs:
            return "end command"
        if turn_runs:
            return "stop turn"
        return "clear input" if typed else "warn"

    def forget(self) -> None:
        self.leaves_next = False
