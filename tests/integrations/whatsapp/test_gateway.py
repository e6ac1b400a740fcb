"""The gateway with WhatsApp alone: from a signed call of the webhook over a real socket to the answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from proof.platforms.whatsapp import FakeWhatsApp

from gateway.gateways import running_gateway
from tailrace.delivery.planning.presenter import UNSHOWN
from tailrace.gateway.webhooks import listening
from tailrace.testing.clock import driven
from tailrace.testing.platforms.loopback import bad_gateway
from tailrace.testing.provider import FaultyProvider, Reply, Scenario, call, reply

SETTINGS = 'whatsapp: {{enabled: true, allow: ["+15550001"], phone_number_id: "{number}", base_url: "{url}"}}'


@asynccontextmanager
async def served(home: Path, *script: Reply | Scenario) -> AsyncIterator[tuple[FakeWhatsApp, FaultyProvider]]:
    async with FakeWhatsApp() as whatsapp:
        settings = SETTINGS.format(number=whatsapp.phone_number_id, url=whatsapp.url)
        env = {
            "WHATSAPP_TOKEN": whatsapp.token,
            "WHATSAPP_APP_SECRET": whatsapp.app_secret,
            "WHATSAPP_VERIFY_TOKEN": whatsapp.verify_token,
        }
        async with (
            running_gateway(home, script, settings, env) as (gateway, provider),
            listening(gateway, "127.0.0.1", 0) as address,
        ):
            whatsapp.webhook_url = f"{address}/platforms/whatsapp/webhook"
            yield whatsapp, provider


@driven
async def test_a_message_is_read_answered_whole_and_G88_once(tmp_path: Path) -> None:
    slow = Scenario(reply=reply("Hello, **Ada**. How are you today?"), pace_s=1.0)
    async with served(tmp_path, slow) as (whatsapp, provider):
        ada = whatsapp.person("15550001")
        body = whatsapp.message(ada, "hello")
        assert await whatsapp.call_webhook(body) == 200
        assert await whatsapp.call_webhook(body) == 200
        await whatsapp.until(lambda: ada.texts)
        assert await whatsapp.call_webhook(body) == 200
        assert ada.texts == ["Hello, *Ada*. How are you today?"]
        assert set(ada.read) == {"wamid.in-1"}
        assert ada.typing
        assert len(provider.requests) == 1


@driven
async def test_J120_an_unsigned_call_starts_nothing(tmp_path: Path) -> None:
    async with served(tmp_path, reply("Hello.")) as (whatsapp, provider):
        ada = whatsapp.person("15550001")
        assert await whatsapp.call_webhook(whatsapp.message(ada, "hello"), signature="sha256=00") == 401
        query = {"hub.mode": "subscribe", "hub.verify_token": whatsapp.verify_token, "hub.challenge": "42"}
        async with aiohttp.ClientSession() as session, session.get(whatsapp.webhook_url, params=query) as verified:
            assert (verified.status, await verified.text()) == (200, "42")
        assert await whatsapp.write(ada, "hello again") == 200
        await whatsapp.until(lambda: ada.texts == ["Hello."])
        assert [request.json()["messages"][-1]["content"] for request in provider.requests] == ["hello again"]


@driven
async def test_G80_an_answer_that_got_lost_on_the_way_is_said_in_the_chat(tmp_path: Path) -> None:
    async with served(tmp_path, reply("One."), reply("Two."), reply("Three.")) as (whatsapp, _):
        ada = whatsapp.person("15550001")
        await whatsapp.write(ada, "first")
        await whatsapp.until(lambda: ada.texts == ["One."])
        await whatsapp.write(ada, "second")
        await whatsapp.until(lambda: ada.texts == ["One.", "Two."])
        whatsapp.fail("messages", bad_gateway())
        await whatsapp.write(ada, "third")
        await whatsapp.until(lambda: ada.texts == ["One.", "Two.", UNSHOWN])


@driven
async def test_G80_an_answer_whose_reply_alone_got_lost_is_shown_once_and_nothing_is_said(tmp_path: Path) -> None:
    async with served(tmp_path, reply("One."), reply("Two."), reply("Three.")) as (whatsapp, _):
        ada = whatsapp.person("15550001")
        await whatsapp.write(ada, "first")
        await whatsapp.until(lambda: ada.texts == ["One."])
        whatsapp.fail("messages", bad_gateway(accepted=True))
        await whatsapp.write(ada, "second")
        await whatsapp.until(lambda: ada.texts == ["One.", "Two."])
        await asyncio.sleep(30)  # on a driven clock: nothing follows
        await whatsapp.write(ada, "third")
        await whatsapp.until(lambda: ada.texts == ["One.", "Two.", "Three."])


@driven
async def test_an_approval_is_given_in_words(tmp_path: Path) -> None:
    script = [reply(call("terminal", {"command": "rm -rf build"})), reply("It is gone.")]
    (tmp_path / "build").mkdir()
    async with served(tmp_path, *script) as (whatsapp, _):
        ada = whatsapp.person("15550001")
        await whatsapp.write(ada, "remove the build directory")
        await whatsapp.until(lambda: any("/approve" in text for text in ada.texts))
        await whatsapp.write(ada, "/approve")
        await whatsapp.until(lambda: ada.texts[-1] == "It is gone.")
        assert not (tmp_path / "build").exists()


@driven
async def test_images_that_are_sent_at_once_are_one_question(tmp_path: Path) -> None:
    async with served(tmp_path, reply("A boat and a mill.")) as (whatsapp, provider):
        ada = whatsapp.person("15550001")
        async with asyncio.TaskGroup() as group:  # Meta calls for each at once, and waits for no answer before the next
            for caption in ("", "", "What are they?"):
                image = whatsapp.media(b"\x89PNG", "image/png", caption=caption)
                group.create_task(whatsapp.call_webhook(whatsapp.message(ada, type="image", image=image)))
                await asyncio.sleep(0.1)
        await whatsapp.until(lambda: ada.texts == ["A boat and a mill."])
        [request] = provider.requests
        parts = request.json()["messages"][-1]["content"]
        assert [part["type"] for part in parts] == ["text", "image_url", "image_url", "image_url"]
        assert parts[0]["text"] == "What are they?"


@driven
async def test_J110_a_yolo_of_the_downtime_is_told_and_not_carried_out(tmp_path: Path) -> None:
    async with served(tmp_path) as (whatsapp, _):
        ada = whatsapp.person("15550001")
        for age_s, command in ((3600, "/yolo on"), (60, "/yolo on")):
            written = str(int(time.time()) - age_s)
            assert await whatsapp.call_webhook(whatsapp.message(ada, command, timestamp=written)) == 200
            await asyncio.sleep(5)
        away, loosened = ada.texts
        assert away.startswith("I was away when /yolo came")
        assert loosened.startswith("⚠️ Everything is approved")
