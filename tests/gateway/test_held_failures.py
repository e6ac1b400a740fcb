"""A held part that fails, or cannot be read, holds up no part of anybody else."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from gateway.fake_gateways import Town, town
from tailrace.delivery.port import MessageReceived, Place, Sender
from tailrace.errors import JournalError
from tailrace.gateway.chats.held_parts import NAMESPACE, HeldPart, HeldParts
from tailrace.gateway.inbound import PASTE_GAP_S
from tailrace.gateway.registry import account_of
from tailrace.journal.key_values import KeyValues
from tailrace.testing.clock import driven
from tailrace.testing.provider import reply

LOOK_S = 60.0  # longer than between two looks


def part(update_id: str, chat: str, text: str, at: float) -> HeldPart:
    message = MessageReceived(update_id, Place("telegram", chat), Sender("1"), text, at_limit=True)
    return HeldPart("gone", at, message)


def key(here: Town, update_id: str) -> str:
    return f"{account_of(here.app.config, 'telegram')} {update_id}"


async def held(here: Town) -> list[str]:
    return sorted(stored.split()[-1] for stored in await here.app.journal.list_values(NAMESPACE))


def test_a_part_that_always_fails_holds_up_only_what_belongs_to_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = (
        part("u1", "42", "the first part", 1.0),
        part("u2", "43", "another chat", 1.1),
        part("u3", "42", "the second part", 1.0 + PASTE_GAP_S),
        part("u4", "42", "a later message", 100.0),
    )

    @driven
    async def scenario() -> None:
        async with town(tmp_path, reply("One."), reply("Two."), reply("Three.")) as here:
            kept, keep = KeyValues(here.app.journal, NAMESPACE, HeldPart), HeldParts.keep

            async def fail(ours: HeldParts, update_id: str, *more: Any) -> HeldPart:
                if update_id == "u1":
                    raise JournalError("there is something about it")
                return await keep(ours, update_id, *more)

            with monkeypatch.context() as patched:
                patched.setattr(HeldParts, "keep", fail)
                for one in parts:
                    await kept.set_default(key(here, one.message.update_id), one)
                await asyncio.sleep(LOOK_S)
                assert here.platform.chat("43").texts == ("One.",)
                assert here.chat.texts == ("Two.",)
                assert await held(here) == ["u1", "u3"]
            await asyncio.sleep(LOOK_S)
            assert await held(here) == []
            assert here.said[-1] == "the first part\nthe second part"

    scenario()
    told = [record.getMessage() for record in caplog.records if "held" in record.getMessage()]
    assert all("telegram:42" in line and "there is something about it" in line for line in told)
    assert told


def test_a_value_that_cannot_be_read_is_told_once_and_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    @driven
    async def scenario() -> None:
        async with town(tmp_path, reply("One."), reply("Two.")) as here:
            await here.app.journal.swap_value(NAMESPACE, key(here, "u1"), None, b'{"owner": 7}')
            ours = part("u2", "42", "a part", 1.0)
            await KeyValues(here.app.journal, NAMESPACE, HeldPart).set_default(key(here, "u2"), ours)
            await asyncio.sleep(3 * LOOK_S)
            assert (here.said, await held(here)) == (["a part"], ["u1"])
            await here.write("It comes again.", update_id="u1", at_limit=True)
            await asyncio.sleep(LOOK_S)
            assert (here.said[-1], await held(here)) == ("It comes again.", [])
            aside = await here.app.journal.list_values(f"{NAMESPACE}.unreadable")
            assert aside == {key(here, "u1"): b'{"owner": 7}'}

    with caplog.at_level(logging.WARNING, "tailrace.gateway"):
        scenario()
    told = [record.getMessage() for record in caplog.records if NAMESPACE in record.getMessage()]
    assert [line.rpartition(";")[2] for line in told] == [
        " the part of a message that it holds is not asked",
        " it is moved to chats.held.unreadable",
    ]
    assert "u1" in told[0]
