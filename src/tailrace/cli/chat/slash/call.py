"""What a slash command is given: the conversation that it acts on and the surface that shows what it did."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from tailrace.agent.service import TurnSpec
from tailrace.cli.chat.conversation import Conversation
from tailrace.ports import Run


class ChatSurface(Protocol):
    """Where the conversation is shown."""

    def notify(self, text: str) -> None:
        """Shows a message of the program itself."""

    def replay(self, run: Run) -> Awaitable[None]:
        """Shows an ended run."""

    def watch(self, run: Run) -> Awaitable[None]:
        """Shows a run that has not ended, from its beginning, and follows it."""

    def submit(self, spec: TurnSpec, *, with_question: bool = True) -> Awaitable[None]:
        """Starts this turn in the session and shows it."""

    def interrupt(self) -> Awaitable[bool]:
        """Stops the running turn; False where there is none."""

    def leave(self) -> None:
        """Ends the conversation."""

    def clear(self) -> None:
        """Empties the window, where there is one."""

    def copy(self, text: str) -> bool:
        """Puts the text on the user's clipboard; False where there is none."""

    def expand(self, number: int | None) -> bool:
        """Shows one tool in full, the last one without a number; False where there is none."""

    def aside(self) -> AbstractAsyncContextManager[None]:
        """Within the block, other code may write to the terminal."""


class SlashCall(NamedTuple):
    """One call of a command: its conversation, its surface, the rest of the line."""

    conversation: Conversation
    surface: ChatSurface
    argument: str


SlashHandler = Callable[[SlashCall], Awaitable[None]]
