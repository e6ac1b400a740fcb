"""Matrix against the suite that every adapter passes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from integrations.matrix.synapse import Homeserver, Person, people
from tailrace.delivery.port import Attachment, Place
from tailrace.integrations.matrix.adapter import MatrixPlatform
from tailrace.testing.conformance.platform import (
    NOWHERE,
    WRONG_TOKEN,
    OpenRig,
    PlatformConformance,
    PlatformRig,
    connected,
)
from tailrace.testing.platforms.collecting_inbox import CollectingInbox


class Rig(PlatformRig):
    def __init__(
        self, platform: MatrixPlatform, room: str, inbox: CollectingInbox, server: Homeserver, ada: Person, bot: Person
    ) -> None:
        super().__init__(platform, Place("matrix", room), inbox, None)
        self._server, self._ada, self._bot = server, ada, bot

    def answers(self) -> list[list[str]]:
        seen = self._ada.from_(self.place.chat, self._bot.user_id)
        return [[str(state["body"]) for state in message.states] for message in seen]

    async def until(self, condition: Callable[[], object]) -> None:
        await self._ada.until(condition)

    async def files(self) -> list[bytes]:
        seen = [message.states[-1] for message in self._ada.from_(self.place.chat, self._bot.user_id)]
        sent = [str(state["url"]) for state in seen if state["msgtype"] in ("m.image", "m.file")]
        return [await self.platform.fetch(Attachment(url), max_bytes=1 << 20) for url in sent]

    async def write(self, text: str) -> None:
        await self._ada.write(self.place.chat, text)

    async def attach(self, name: str, content: bytes) -> None:
        uri = await self._ada.upload(name, content, "text/plain")
        info = {"mimetype": "text/plain", "size": len(content)}
        await self._ada.write(self.place.chat, name, msgtype="m.file", url=uri, info=info)

    def unreachable(self) -> MatrixPlatform:
        return MatrixPlatform(NOWHERE, self._bot.user_id, token="x")

    def stranger(self) -> MatrixPlatform:
        return MatrixPlatform(self._server.url, self._bot.user_id, token=WRONG_TOKEN)

    def check_long_text(self) -> None:
        html = "".join(seen.html for seen in self._ada.from_(self.place.chat, self._bot.user_id))
        assert html.count("<td>row ") == 120
        assert "```" not in html


class TestMatrix(PlatformConformance):
    """Synapse has its own clock, and its own rate limits: a short text, and a long one in few pieces."""

    drives_clock = False
    words = 60
    pace_s = 0.05
    long_piece, long_pace_s = 3000, 0.0

    @pytest.fixture
    def open_rig(self, server: Homeserver) -> OpenRig:
        @asynccontextmanager
        async def rig(*, listening: bool) -> AsyncIterator[Rig]:
            async with people(server, "ada", "bot") as (ada, bot):
                room = await ada.room(bot.user_id)
                await bot.ask("POST", f"client/v3/join/{room}", {})
                platform = MatrixPlatform(server.url, bot.user_id, token=bot.token, allow=("*",), answer_s=30.0)
                async with connected(platform, listening=listening) as inbox:
                    yield Rig(platform, room, inbox, server, ada, bot)

        return rig
