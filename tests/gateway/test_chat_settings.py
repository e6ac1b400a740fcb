"""What the gateway keeps of chats and users: across restarts, and between processes."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from msgspec.structs import replace

from tailrace.errors import TailraceError
from tailrace.gateway.chat_settings import ChatSettings, ChatSettingsStore, Pairing
from tailrace.journal.memory import MemoryJournal
from tailrace.journal.open_journal import open_journal
from tailrace.ports import Journal


def sqlite_journal(home: Path) -> AbstractAsyncContextManager[Journal]:
    return open_journal("sqlite:///t.db", home / "t.db")


async def test_settings_are_kept_and_seen_by_another_process(tmp_path: Path) -> None:
    async with sqlite_journal(tmp_path) as one, sqlite_journal(tmp_path) as two:
        chats, other = ChatSettingsStore(one), ChatSettingsStore(two)
        await chats.update("telegram:42", lambda _: ChatSettings(generation=3, model="a/b"))
        assert await other.of("telegram:42") == ChatSettings(generation=3, model="a/b")
        assert await other.of("telegram:43") == ChatSettings()


async def test_two_processes_that_change_one_chat_at_once_lose_nothing(tmp_path: Path) -> None:
    async with sqlite_journal(tmp_path) as one, sqlite_journal(tmp_path) as two:
        stores = [ChatSettingsStore(one), ChatSettingsStore(two)]
        anew = [
            store.update("telegram:42", lambda known: replace(known, generation=known.generation + 1))
            for _ in range(20)
            for store in stores
        ]
        await asyncio.gather(*anew)
        assert (await stores[0].of("telegram:42")).generation == 40


async def test_pairing_beside_a_live_gateway_loses_neither_codes_nor_users(tmp_path: Path) -> None:
    """The operator lets users in while the gateway gives out codes to others."""
    async with sqlite_journal(tmp_path) as gateway, sqlite_journal(tmp_path) as operator:
        pairing = Pairing(gateway)
        codes = [await pairing.code_for(f"telegram:{user}", "") for user in range(20)]
        accepted = [Pairing(operator).accept(code) for code in codes if code is not None]
        given = [pairing.code_for(f"slack:{user}", "") for user in range(20)]
        await asyncio.gather(*accepted, *given)
        assert [user for user in range(20) if not await pairing.is_paired(f"telegram:{user}")] == []
        assert set(await pairing.codes.all()) == {f"slack:{user}" for user in range(20)}


async def test_a_pairing_code_works_once_and_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    pairing = Pairing(MemoryJournal())
    code = await pairing.code_for("telegram:1", "Ada")
    assert code == await pairing.code_for("telegram:1", "Ada")
    assert code is not None
    assert (await pairing.accept(code.lower())).user == "telegram:1"
    assert await pairing.is_paired("telegram:1")
    with pytest.raises(TailraceError):
        await pairing.accept(code)
    late = await pairing.code_for("telegram:2", "")
    assert late is not None
    monkeypatch.setattr("tailrace.gateway.chat_settings.time.time", lambda: 4e9)
    with pytest.raises(TailraceError):
        await pairing.accept(late)
    assert await pairing.code_for("telegram:3", "") is not None
    assert set(await pairing.codes.all()) == {"telegram:3"}, "an expired code makes room"
