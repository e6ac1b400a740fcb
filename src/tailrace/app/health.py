"""Whether the parts that every request needs are there, the store, and the bus where one is configured; and which chat
platforms are not connected."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal

from tailrace.errors import JournalError, StorageFailed
from tailrace.journal.bus import Bus
from tailrace.ports import Journal

ANSWER_S: Final = 2.0  # a part that takes longer counts as unavailable
Part = Literal["store", "bus"]


async def unavailable_parts(
    journal: Journal, bus: Bus | None = None, *, timeout_s: float = ANSWER_S
) -> dict[Part, JournalError]:
    """What is not there now, and why. Without the store nothing can be done. Without the bus nothing is lost: viewers
    of other machines' runs read the store, a little later."""
    checks: dict[Part, Callable[[], Awaitable[None]]] = {"store": journal.check}
    if bus is not None:
        checks["bus"] = bus.check
    failures = await asyncio.gather(*(_failure(check, timeout_s) for check in checks.values()))
    return {part: failure for part, failure in zip(checks, failures, strict=True) if failure is not None}


def reasons_of(failures: Mapping[Part, JournalError]) -> dict[str, str]:
    """For a client: without the paths of this machine."""
    return {
        part: failure.reason if isinstance(failure, StorageFailed) else str(failure)
        for part, failure in failures.items()
    }


async def _failure(check: Callable[[], Awaitable[None]], timeout_s: float) -> JournalError | None:
    try:
        async with asyncio.timeout(timeout_s):
            await check()
    except TimeoutError:
        message = f"no answer within {timeout_s:g} s"
        return StorageFailed(message, reason=message)
    except JournalError as exc:
        return exc
    return None


class PlatformsDown:
    """The chat platforms that this process should serve and is not connected to, or cannot answer on, and why. A
    platform that another process serves is not among them."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}
        self._tell: Callable[[str, bool], None] = lambda *_: None

    @property
    def reasons(self) -> Mapping[str, str]:
        """Why, by the platform's name."""
        return self._reasons

    def mark(self, name: str, reason: str) -> None:
        self._reasons[name] = reason
        self._tell(name, True)

    def clear(self, name: str) -> None:
        """It is connected and takes answers, or another process serves it."""
        self._reasons.pop(name, None)
        self._tell(name, False)

    def watch(self, tell: Callable[[str, bool], None]) -> None:
        """`tell` is called with each platform that is down or no longer is, those of now included."""
        self._tell = tell
        for name in self._reasons:
            tell(name, True)
