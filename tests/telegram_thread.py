"""One private chat of Telegram's API on a loop and a thread of its own, for code that blocks the thread it runs in."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from proof.platforms.telegram import FakeTelegram


class TelegramOnAThread:
    """What a person has of it: a chat to write in and to read."""

    def __init__(self, fake: FakeTelegram, loop: asyncio.AbstractEventLoop) -> None:
        self.url, self.token = fake.url, fake.token
        self._fake, self._loop = fake, loop
        self._chat = fake.private(7)

    def write(self, text: str) -> None:
        asyncio.run_coroutine_threadsafe(self._write(text), self._loop).result()

    @property
    def texts(self) -> list[str]:
        return list(self._chat.texts)

    async def _write(self, text: str) -> None:
        self._fake.write(self._chat, text)


@contextmanager
def telegram_on_a_thread() -> Iterator[TelegramOnAThread]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    fake = asyncio.run_coroutine_threadsafe(_started(), loop).result()
    try:
        yield TelegramOnAThread(fake, loop)
    finally:
        asyncio.run_coroutine_threadsafe(fake.__aexit__(None, None, None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _started() -> FakeTelegram:
    return await FakeTelegram().__aenter__()
