"""Messages that a client has split: the parts of a paste, or what it sends at once (G89).

Pure: every method that needs the time takes it as a parameter. Knows no platform and starts nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from tailrace.delivery.port import MessageReceived

PASTE_GAP_S = 1.5


class Pastes:
    """A message at the size limit is held for `PASTE_GAP_S`; the sender's next message in the same place within that
    time is appended to it."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], tuple[MessageReceived, float]] = {}

    @property
    def due_at(self) -> float | None:
        """When the next held message is complete, if no other part arrives."""
        return min((until for _, until in self._held.values()), default=None)

    def continues(self, message: MessageReceived) -> bool:
        """Whether a part of the same paste is held."""
        return _of_sender(message) in self._held

    def take_of_sender(self, message: MessageReceived) -> MessageReceived | None:
        """The held message of this message's sender, as it is."""
        held = self._held.pop(_of_sender(message), None)
        return held[0] if held is not None else None

    def add(self, message: MessageReceived, now: float) -> MessageReceived | None:
        """The complete message, or None while another part may arrive."""
        key = _of_sender(message)
        held = self._held.pop(key, None)
        whole = joined_message(held[0], message) if held is not None else message
        if not message.at_limit:
            return whole
        self._held[key] = (whole, now + PASTE_GAP_S)
        return None

    def take_complete(self, now: float) -> list[MessageReceived]:
        """Held messages whose time has passed."""
        due = [key for key, (_, until) in self._held.items() if until <= now]
        return [self._held.pop(key)[0] for key in due]

    def hold_again(self, messages: Iterable[MessageReceived], due_at: float = 0.0) -> None:
        """Messages that were taken and have not become questions. They are due at once, or at `due_at`; what their
        senders have written since stands below them."""
        for message in messages:
            key = _of_sender(message)
            later = self._held.get(key)
            self._held[key] = (message if later is None else joined_message(message, later[0]), due_at)

    def take_all(self) -> list[MessageReceived]:
        held = [message for message, _ in self._held.values()]
        self._held.clear()
        return held


def _of_sender(message: MessageReceived) -> tuple[str, str]:
    """A message that begins a thread of its own is in none yet: the next part of the paste begins another one."""
    place = message.place
    thread = place.thread if place.thread != message.message_id else ""
    return replace(place, thread=thread).key, message.sender.id


def joined_message(first: MessageReceived, second: MessageReceived) -> MessageReceived:
    """One message with the first one's id. Clients cut at a space or a line end and drop it; a line end replaces it."""
    return replace(
        first,
        text="\n".join(text for text in (first.text, second.text) if text),
        attachments=first.attachments + second.attachments,
        quoted=first.quoted + second.quoted,
        addressed=first.addressed or second.addressed,
        at_limit=second.at_limit,
        parts=part_ids(first) + part_ids(second),
    )


def part_ids(message: MessageReceived) -> tuple[str, ...]:
    """The updates that it was joined from."""
    return message.parts or (message.update_id,)
