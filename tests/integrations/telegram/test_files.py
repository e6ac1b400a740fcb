"""A file is read up to its bound, whatever the server has said of its size."""

from __future__ import annotations

from contextlib import suppress

import pytest
from aiohttp import web
from proof.platforms.telegram import FakeTelegram

from tailrace.delivery.port import Attachment
from tailrace.errors import PlatformError
from tailrace.integrations.telegram.adapter import TelegramPlatform
from tailrace.testing.clock import driven
from tailrace.testing.platforms.loopback import json_fault

PIECE = b"x" * 65536
PIECES = 1000  # far more than sockets hold
NOTES = Attachment("notes.txt", "notes.txt", "text/plain")


class LongerThanSaid(FakeTelegram):
    """Gives more than `getFile` has named."""

    sent = 0

    async def _serve_file(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with suppress(ConnectionError):  # who reads has left
            for _ in range(PIECES):
                await response.write(PIECE)
                self.sent += 1
        return response


@driven
async def test_a_file_that_is_longer_than_said_is_not_read_to_its_end() -> None:
    async with LongerThanSaid() as telegram:
        telegram.send_file(telegram.private(7), "notes.txt", b"some notes", "text/plain")
        platform = TelegramPlatform(telegram.token, base_url=telegram.url)
        try:
            with pytest.raises(PlatformError, match=r"notes.txt is larger than 100 bytes"):
                await platform.fetch(NOTES, max_bytes=100)
        finally:
            await platform.close()
    assert telegram.sent < PIECES


@driven
async def test_a_file_that_the_server_no_longer_has_is_told_as_such() -> None:
    async with FakeTelegram() as telegram:
        telegram.send_file(telegram.private(7), "notes.txt", b"some notes", "text/plain")
        platform = TelegramPlatform(telegram.token, base_url=telegram.url)
        try:
            assert await platform.fetch(NOTES, max_bytes=10) == b"some notes"
            gone = {"file_id": "n", "file_unique_id": "n", "file_path": "gone.txt"}
            telegram.fail("getFile", json_fault(200, {"ok": True, "result": gone}))
            with pytest.raises(PlatformError, match=r"notes.txt could not be fetched: telegram answered 404$"):
                await platform.fetch(NOTES, max_bytes=10)
        finally:
            await platform.close()
