"""The gateway in threads of larger rooms, with a real Synapse."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from gateway.gateway_process import gateway_process, kill_9
from gateway.gateways import config_for
from integrations.matrix.synapse import Homeserver, people
from integrations.matrix.test_gateway import settings_for, texts
from tailrace.testing.provider import FaultyProvider, reply


async def test_in_a_larger_room_a_thread_that_the_bot_is_in_needs_no_mention_also_after_a_restart(
    server: Homeserver, tmp_path: Path
) -> None:
    script = [reply("First."), reply("Second."), reply("Third."), reply("Fourth.")]
    async with people(server, "ada", "ben", "bot") as (ada, ben, account), FaultyProvider(script) as provider:
        env, bot = {"MATRIX_TOKEN": account.token}, account.user_id
        config_for(tmp_path, provider, settings_for(server, account, ada), {}, store="sqlite:///tailrace.db")
        async with gateway_process(tmp_path, env) as first:
            room = await ada.room(bot, ben.user_id)
            await ben.ask("POST", f"client/v3/join/{quote(room)}", {})
            await ada.until(lambda: {(room, bot), (room, ben.user_id)} <= ada.joined)
            root = await ada.write(room, f"{bot}: one")
            await ada.until(lambda: texts(ada, room, account) == ["First."])
            answer = ada.from_(room, bot)[0].event_id
            thread = {"rel_type": "m.thread", "event_id": root}
            await ada.write(room, "not for the bot yet", **{"m.relates_to": thread})
            await ada.write(room, f"{bot}: two", **{"m.relates_to": thread})
            await ada.until(lambda: texts(ada, room, account) == ["First.", "Second."])
            await kill_9(first)
        await ada.write(room, "ben?", **{"m.relates_to": thread, "m.mentions": {"user_ids": [ben.user_id]}})
        await ada.write(room, "three", **{"m.relates_to": thread})
        async with gateway_process(tmp_path, env):
            await ada.until(lambda: texts(ada, room, account) == ["First.", "Second.", "Third."])
            below_its_words = {"rel_type": "m.thread", "event_id": answer}
            await ada.write(room, "four", **{"m.relates_to": below_its_words})
            await ada.until(lambda: texts(ada, room, account) == ["First.", "Second.", "Third.", "Fourth."])
        assert [seen.thread for seen in ada.from_(room, bot)] == ["", root, root, answer]
        asked = [request.json()["messages"][-1]["content"] for request in provider.requests]
        name = ada.user_id.removeprefix("@").partition(":")[0]
        head = f'[from {ada.user_id} "{name}"]\n'
        two, four = f'[in reply to "{name}"]\n> {bot}: one\n| two', "[in reply to you]\n> First.\n| four"
        assert asked == [head + each for each in ("| one", two, "| three", four)]


async def test_after_a_restart_what_a_thread_hangs_from_is_not_quoted_again(server: Homeserver, tmp_path: Path) -> None:
    script = [reply("First."), reply("Second."), reply("Third.")]
    async with people(server, "ada", "bot") as (ada, account), FaultyProvider(script) as provider:
        env, bot = {"MATRIX_TOKEN": account.token}, account.user_id
        config_for(tmp_path, provider, settings_for(server, account, ada), {}, store="sqlite:///tailrace.db")
        async with gateway_process(tmp_path, env) as first:
            room = await ada.room(bot)
            await ada.until(lambda: (room, bot) in ada.joined)
            root = await ada.write(room, "one")
            await ada.until(lambda: texts(ada, room, account) == ["First."])
            thread = {"m.relates_to": {"rel_type": "m.thread", "event_id": root}}
            await ada.write(room, "two", **thread)
            await ada.until(lambda: texts(ada, room, account) == ["First.", "Second."])
            first.terminate()  # so that nothing of the second answer is left to be shown
            await first.wait()
        async with gateway_process(tmp_path, env):
            await ada.write(room, "three", **thread)
            await ada.until(lambda: texts(ada, room, account) == ["First.", "Second.", "Third."])
        name = ada.user_id.removeprefix("@").partition(":")[0]
        asked = [request.json()["messages"][-1]["content"] for request in provider.requests]
        assert asked == ["one", f'[in reply to "{name}"]\n> one\n\ntwo', "three"]
