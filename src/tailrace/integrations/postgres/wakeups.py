"""How processes wake each other: one NOTIFY for each group commit, one connection that listens.

A wake-up says which runs grew, which have a new signal, which sessions have a new run, and whether small state has
changed. It may be lost with the connection that listens: after each gap everything that is watched is looked at.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tailrace.integrations.postgres.address import Address, Connection, connect

log = logging.getLogger("tailrace.journal")
MAX_BYTES = 7_900  # PostgreSQL takes less than 8000
ANY = "*"  # in place of names: any run
PING_S = 10.0  # how often the listening connection is asked whether it is still there
PING_TIMEOUT_S = 5.0
PAUSE_FIRST_S = 0.05
PAUSE_MAX_S = 2.0
_PLAIN = re.compile(r"[A-Za-z0-9_\-]+")


def channel_of(address: Address) -> str:
    """Channels belong to a database; each schema has its own."""
    return f"tailrace_{address.schema}"[:63]


class Wakeup(NamedTuple):
    """`sender` is the process that committed. A list may be `["*"]`."""

    sender: str
    grown: Sequence[str] = ()
    signalled: Sequence[str] = ()
    begun: Sequence[str] = ()  # sessions that have a new run, by their `mark_of`
    values_changed: bool = False  # of the small state

    def encoded(self) -> str:
        """Empty where there is nothing to tell."""
        lists = (self.grown, self.signalled, self.begun)
        if not any(lists) and not self.values_changed:
            return ""
        flag = "v" if self.values_changed else ""
        text = ";".join([self.sender, *(",".join(dict.fromkeys(names)) for names in lists), flag])
        if len(text) > MAX_BYTES or not all(_PLAIN.fullmatch(name) for names in lists for name in names):
            return ";".join([self.sender, *(ANY if names else "" for names in lists), flag])
        return text


EVERYTHING = Wakeup("", [ANY], [ANY], [ANY], values_changed=True)


def decoded(payload: str) -> Wakeup:
    """What another version sends is taken as a wake-up for everything."""
    match payload.split(";"):
        case [sender, *lists, flag] if len(lists) == 3:
            grown, signalled, begun = (names.split(",") if names else () for names in lists)
            return Wakeup(sender, grown, signalled, begun, flag == "v")
        case _:
            return EVERYTHING


class Listener:
    """The one connection of this process that listens. It is made again, after pauses that grow, when it is lost."""

    def __init__(self, address: Address, woken: Callable[[Wakeup], None], gap: Callable[[], None]) -> None:
        """`gap` is called whenever wake-ups may have been missed and come again from now on."""
        self._address = address
        self._woken = woken
        self._gap = gap

    async def run(self) -> None:
        """Until it is cancelled."""
        pause_s = PAUSE_FIRST_S
        while True:
            try:
                connection = await connect(self._address, "listener")
                pause_s = PAUSE_FIRST_S
                try:
                    await self._listen(connection)
                finally:
                    connection.terminate()
            except Exception as exc:  # noqa: BLE001 - the top of the task; the writer says what is wrong
                log.debug("the listening connection is gone: %r", exc)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    async def _listen(self, connection: Connection) -> None:
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _connection: lost.set())
        await connection.add_listener(channel_of(self._address), self._on_notify)
        self._gap()
        while not lost.is_set():
            try:
                async with asyncio.timeout(PING_S):
                    await lost.wait()
            except TimeoutError:
                async with asyncio.timeout(PING_TIMEOUT_S):
                    await connection.execute("SELECT 1")

    def _on_notify(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        self._woken(decoded(str(payload)))
