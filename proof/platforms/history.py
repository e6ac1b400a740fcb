"""What the people in a fake's chats see: messages, each with every state that it was in. Knows no platform."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar


@dataclass(frozen=True)
class ShownState:
    """What a message showed from `at` on. `buttons`: label and value."""

    text: str
    buttons: tuple[tuple[str, str], ...] = ()
    at: float = 0.0


StateT = TypeVar("StateT", bound=ShownState)


class ShownMessage(Generic[StateT]):
    """`states` are all that it ever showed, in order; the last is what it shows."""

    author: object
    states: list[StateT]
    deleted: bool

    @property
    def state(self) -> StateT:
        return self.states[-1]

    @property
    def text(self) -> str:
        return self.state.text

    @property
    def buttons(self) -> tuple[tuple[str, str], ...]:
        return self.state.buttons


MessageT = TypeVar("MessageT", bound=ShownMessage[Any])


class ShownChat(Generic[MessageT]):
    BOT: ClassVar[object]  # the bot's id
    messages: list[MessageT]

    @cached_property
    def files(self) -> list[tuple[str, str, bytes]]:
        """What the bot uploaded: the kind or media type, the name, the content."""
        return []

    @property
    def answers(self) -> list[MessageT]:
        """What the bot wrote and is still there, from top to bottom."""
        return [message for message in self.messages if message.author == self.BOT and not message.deleted]

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.answers]
