"""The thread that somebody calls the bot into, as quotations for the model: what was said there before. Pure.

A platform sends the message alone that calls the bot; its adapter reads the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tailrace.delivery.planning.presenter import quotation

MAX_MESSAGES = 30  # of a thread: its first one and the newest
MAX_CHARS = 2000  # of one of them
UNREAD = "[in reply to a thread that could not be read]"
T = TypeVar("T")


def first_and_newest(above: Sequence[T]) -> list[T]:
    """What is quoted of a thread, the oldest first."""
    return [*above[:1], *above[1:][-(MAX_MESSAGES - 1) :]]


def quoted_message(author: str, text: str, files: Sequence[str]) -> str:
    """One message of the thread, with the names of its files, which are not read."""
    text = text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"
    listed = f"{text}\n(files: {', '.join(files)})" if files else text
    return f"[in reply to {author}]\n{quotation(listed)}".rstrip()


def left_out_words(count: int | None) -> str:
    """Stands in the place of those between the first one and the newest. None: nobody has counted them."""
    return f"[in reply to {f'{count} ' if count is not None else ''}more messages, which are left out here]"
