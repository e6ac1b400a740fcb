"""What the suite of a platform needs of each: an adapter, a chat, and what the people there see and do.

An adapter's author writes a subclass of `PlatformRig` over a fake of the platform, or over the platform itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal, Protocol, TypeAlias

import pytest

from tailrace.delivery.port import Capabilities, Place, Platform
from tailrace.testing.platforms.collecting_inbox import CollectingInbox, running
from tailrace.testing.platforms.loopback import Fault, LoopbackFake, bad_gateway, cut, silence

NOWHERE = "http://127.0.0.1:9"  # nothing listens there
WRONG_TOKEN = "42:wrong-token"  # noqa: S105 - it opens nothing
Loss = Literal["silence", "cut", "gateway"]
_LOSSES: dict[Loss, Fault] = {"silence": silence(), "cut": cut(), "gateway": bad_gateway(accepted=True)}


class PlatformRig(ABC):
    """An adapter, a chat that it may write to, and what the people in that chat see and do."""

    def __init__(self, platform: Platform, place: Place, inbox: CollectingInbox, fake: LoopbackFake | None) -> None:
        self.platform, self.place, self.inbox, self.fake = platform, place, inbox, fake

    @abstractmethod
    def answers(self) -> list[list[str]]:
        """The messages of the bot in the chat, top to bottom. Of each, the texts that it has shown."""

    @abstractmethod
    async def write(self, text: str) -> None:
        """A person writes to the bot."""

    @abstractmethod
    def unreachable(self) -> Platform:
        """The adapter, connected to `NOWHERE`."""

    @abstractmethod
    def stranger(self) -> Platform:
        """The adapter with `WRONG_TOKEN`."""

    async def files(self) -> list[bytes]:
        """The files that the bot has sent to the chat, in order."""
        pytest.skip("the rig does not see files")

    def flood(self, _retry_after_s: int) -> Fault:
        """The fake's answer to too many requests."""
        pytest.skip("the platform cannot be made to refuse a request")

    async def attach(self, _name: str, _content: bytes) -> None:
        """A person sends a text file to the bot."""
        pytest.skip("the platform takes no files")

    async def write_twice(self, _text: str) -> None:
        """A person writes to the bot, and the platform delivers the update twice."""
        pytest.skip("the platform delivers nothing twice")

    def lose_answer(self, step: str, loss: Loss) -> None:
        """The next request of this name is carried out, and its answer is lost (G80)."""
        if self.fake is None:
            pytest.skip("no answer of the platform can be lost")
        self.fake.fail(step, _LOSSES[loss])

    def update_count(self) -> int:
        """How often the chat has shown something new of the bot."""
        return sum(map(len, self.answers()))

    def check_long_text(self) -> None:  # noqa: B027 - a rig need not have more to check
        """More that holds after `LONG` was delivered."""

    async def until(self, condition: Callable[[], object]) -> None:
        if self.fake is not None:
            await self.fake.until(condition)

    async def shows(self, *texts: str) -> None:
        """Waits until the chat shows exactly these messages."""
        try:
            await self.until(lambda: self.texts == list(texts))
        except TimeoutError:
            assert self.texts == list(texts)

    @property
    def texts(self) -> list[str]:
        return [states[-1] for states in self.answers()]

    @property
    def capabilities(self) -> Capabilities:
        return self.platform.capabilities(self.place)


Scenario: TypeAlias = Callable[[PlatformRig], Awaitable[None]]


class OpenRig(Protocol):
    def __call__(self, *, listening: bool) -> AbstractAsyncContextManager[PlatformRig]:
        """`listening`: the adapter runs, and what it receives is in the rig's inbox."""


@asynccontextmanager
async def connected(platform: Platform, *, listening: bool) -> AsyncIterator[CollectingInbox]:
    """The adapter for the time of the block; it is closed afterwards."""
    if listening:
        async with running(platform) as inbox:
            yield inbox
        return
    try:
        yield CollectingInbox()
    finally:
        await platform.close()
