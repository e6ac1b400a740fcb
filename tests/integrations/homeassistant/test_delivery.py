"""An answer in Home Assistant: consumer, planner, adapter and fake together, on a driven clock."""

from __future__ import annotations

import asyncio

from proof.platforms.homeassistant import FakeHomeAssistant

from tailrace.delivery.port import Place
from tailrace.errors import PlatformError
from tailrace.integrations.homeassistant.adapter import HomeAssistantPlatform
from tailrace.testing.clock import driven
from tailrace.testing.platforms.collecting_inbox import CollectingInbox, running
from tailrace.testing.platforms.played_runs import show

KITCHEN = Place("homeassistant", "kitchen")
TEXT = " ".join(f"word{number}" for number in range(300))


@driven
async def test_the_answer_comes_whole_though_streaming_is_on() -> None:
    async with FakeHomeAssistant() as home:
        platform = HomeAssistantPlatform(home.url, home.token)
        async with running(platform):
            await show(platform, KITCHEN, TEXT)
        [shown] = home.notifications.values()
        assert [state.message for state in shown.states] == [TEXT]
        assert [fired.data["text"] for fired in home.fired] == [TEXT]


@driven
async def test_G80_a_lost_connection_ends_in_one_notification() -> None:
    """The result is lost, the connection is made again, and the same key shows the same notification."""
    async with FakeHomeAssistant() as home:
        platform = HomeAssistantPlatform(home.url, home.token)
        inbox = CollectingInbox()

        async def reconnecting() -> None:
            while True:
                try:
                    await platform.run(inbox)
                except PlatformError:
                    continue

        task = asyncio.ensure_future(reconnecting())
        await inbox.wait_connected()
        home.lose("after", "before")
        scene = await show(platform, KITCHEN, TEXT)
        task.cancel()
        await asyncio.wait([task])
        assert home.messages == [TEXT]
        assert (await scene.facts())[-1].state == "confirmed"
        assert home.connections == 3
