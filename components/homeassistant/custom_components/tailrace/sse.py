"""The server's event stream: bytes in, events out. Pure.

Reads what `GET /runs/{id}/stream` sends: blocks of `id`, `event` and `data` lines that end in LF, and comments.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_EVENT_BYTES = 32 * 1024 * 1024  # the server sends no larger event


@dataclass(frozen=True)
class ServerEvent:
    event: str
    data: bytes


class EventTooLong(ValueError):
    """No blank line for longer than any event of the server."""


class SseReader:
    """Any split of the same bytes gives the same events."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0  # no blank line begins before this offset

    def feed(self, data: bytes) -> list[ServerEvent]:
        """The events that these bytes complete. Raises `EventTooLong`."""
        self._buffer += data
        events = []
        start = 0
        while (end := self._buffer.find(b"\n\n", max(start, self._searched))) >= 0:
            if event := _parsed(bytes(self._buffer[start:end])):
                events.append(event)
            start = end + 2
        del self._buffer[:start]
        self._searched = max(0, len(self._buffer) - 1)
        if len(self._buffer) > MAX_EVENT_BYTES:
            raise EventTooLong(f"an event exceeds {MAX_EVENT_BYTES} bytes")
        return events


def _parsed(block: bytes) -> ServerEvent | None:
    """None for a block of comments alone."""
    event, data = "message", []
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            event = value.decode()
        elif name == b"data":
            data.append(value)
    return ServerEvent(event, b"\n".join(data)) if data else None
