"""The Matrix adapter at a real Synapse, and a room in which it meets somebody."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from integrations.matrix.synapse import Homeserver, Person
from tailrace.delivery.port import Place
from tailrace.integrations.matrix.adapter import MatrixPlatform


@asynccontextmanager
async def bot(server: Homeserver, account: Person, *, allow: tuple[str, ...] = ("*",)) -> AsyncIterator[MatrixPlatform]:
    """The adapter without a sync."""
    platform = bot_of(server, account, allow=allow)
    try:
        yield platform
    finally:
        await platform.close()


def bot_of(server: Homeserver, account: Person, *, allow: tuple[str, ...] = ("*",)) -> MatrixPlatform:
    return MatrixPlatform(server.url, account.user_id, token=account.token, allow=allow, answer_s=30.0)


async def meet(ada: Person, account: Person) -> Place:
    """A room with both of them in it."""
    room = await ada.room(account.user_id)
    await account.ask("POST", f"client/v3/join/{room}", {})
    return Place("matrix", room)
