"""Encryption that is switched on in a room in which the bot answers, with a real Synapse."""

from __future__ import annotations

from pathlib import Path

from gateway.gateways import running_gateway
from integrations.matrix.synapse import Homeserver, people
from integrations.matrix.test_gateway import TEXT, settings_for, texts
from tailrace.integrations.matrix.notices import ENCRYPTED_ROOM
from tailrace.testing.provider import Scenario, reply


async def test_an_answer_under_way_is_completed_and_the_room_is_told_at_once(
    server: Homeserver, tmp_path: Path
) -> None:
    async with people(server, "ada", "bot") as (ada, account):
        env, script = {"MATRIX_TOKEN": account.token}, [Scenario(reply=reply(TEXT), pace_s=0.05)]
        async with running_gateway(tmp_path, script, settings_for(server, account, ada), env) as (_, provider):
            room = await ada.room(account.user_id)
            await ada.until(lambda: (room, account.user_id) in ada.joined)
            await ada.write(room, "count")
            await ada.until(lambda: texts(ada, room, account))
            assert texts(ada, room, account)[0] != TEXT
            secret = {"algorithm": "m.megolm.v1.aes-sha2"}
            await ada.ask("PUT", f"client/v3/rooms/{room}/state/m.room.encryption", secret)
            await ada.until(lambda: texts(ada, room, account) == [TEXT, ENCRYPTED_ROOM])
            content = secret | {"ciphertext": "x", "device_id": "D", "sender_key": "k", "session_id": "s"}
            await ada.ask("PUT", f"client/v3/rooms/{room}/send/m.room.encrypted/e1", content)
            other = await ada.room(account.user_id)
            await ada.until(lambda: (other, account.user_id) in ada.joined)
            assert texts(ada, room, account) == [TEXT, ENCRYPTED_ROOM]
            assert len(provider.requests) == 1
