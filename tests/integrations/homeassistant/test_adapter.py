"""The Home Assistant adapter over a real web socket against the fake."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from proof.platforms.homeassistant import FakeHomeAssistant, Fired, Loss

from tailrace.delivery.port import (
    Accepted,
    Delete,
    Draft,
    Edit,
    Failed,
    MessageReceived,
    Place,
    Refused,
    Send,
    Sender,
    Sent,
    Unknown,
)
from tailrace.errors import PlatformError
from tailrace.integrations.homeassistant.adapter import HomeAssistantPlatform
from tailrace.integrations.homeassistant.socket import connected as home_socket
from tailrace.testing.clock import driven
from tailrace.testing.platforms.collecting_inbox import CollectingInbox, running
from tailrace.testing.platforms.played_runs import show

KITCHEN = Place("homeassistant", "kitchen")


@asynccontextmanager
async def connected(home: FakeHomeAssistant) -> AsyncIterator[tuple[HomeAssistantPlatform, CollectingInbox]]:
    platform = HomeAssistantPlatform(home.url, home.token, answer_s=5.0)
    async with running(platform) as inbox:
        yield platform, inbox


@asynccontextmanager
async def reconnecting(home: FakeHomeAssistant) -> AsyncIterator[HomeAssistantPlatform]:
    """The adapter, connected again as soon as its connection is lost."""
    platform, inbox = HomeAssistantPlatform(home.url, home.token, answer_s=5.0), CollectingInbox()

    async def run() -> None:
        while True:
            with suppress(PlatformError):
                await platform.run(inbox)

    task = asyncio.ensure_future(run())
    await inbox.wait_connected()
    yield platform
    task.cancel()
    await asyncio.wait([task])


@driven
async def test_an_answer_is_a_notification_and_an_event() -> None:
    async with FakeHomeAssistant() as home, connected(home) as (platform, _):
        reply = await platform.perform(KITCHEN, Send("k1", "It is **21 °C**."))
        assert isinstance(reply, Sent)
        assert home.messages == ["It is **21 °C**."]
        told = {"text": "It is **21 °C**.", "plain": "It is 21 °C.", "conversation_id": "kitchen"}
        assert home.fired == [Fired("tailrace_response", {**told, "message_id": reply.message_id})]


@driven
async def test_the_same_id_is_an_edit_and_the_same_key_the_same_notification() -> None:
    async with FakeHomeAssistant() as home, connected(home) as (platform, _):
        first = await platform.perform(KITCHEN, Send("k1", "working on it", final=False))
        assert home.fired == []
        assert await platform.perform(KITCHEN, Send("k1", "working on it", final=False)) == first
        assert isinstance(first, Sent)
        assert await platform.perform(KITCHEN, Edit(first.message_id, "done")) == Accepted()
        [shown] = home.notifications.values()
        assert [state.message for state in shown.states] == ["working on it", "working on it", "done"]
        other = await platform.perform(KITCHEN, Send("k2", "something else"))
        assert other != first
        assert await platform.perform(KITCHEN, Delete(first.message_id)) == Accepted()
        assert await platform.perform(KITCHEN, Delete("never there")) == Accepted()
        assert home.messages == ["something else"]


@driven
async def test_without_markup_every_mark_is_shown() -> None:
    async with FakeHomeAssistant() as home, connected(home) as (platform, _):
        await platform.perform(KITCHEN, Send("k", "**a** [b](c)", markup=False))
        assert home.messages == [r"\*\*a\*\* \[b\]\(c\)"]
        assert home.fired[0].data["plain"] == "**a** [b](c)"


@pytest.mark.parametrize(("loss", "shown"), [("before", []), ("after", ["hello"]), ("silence", ["hello"])])
def test_G80_a_command_without_a_result_is_unknown(loss: Loss, shown: list[str]) -> None:
    @driven
    async def ask() -> None:
        async with FakeHomeAssistant() as home:
            platform = HomeAssistantPlatform(home.url, home.token, answer_s=5.0)
            inbox = CollectingInbox()
            run = asyncio.ensure_future(platform.run(inbox))
            await inbox.wait_connected()
            home.lose(loss)
            assert isinstance(await platform.perform(KITCHEN, Send("k", "hello")), Unknown)
            assert home.messages == shown
            if loss == "silence":
                run.cancel()
                await asyncio.wait([run])
            else:
                with pytest.raises(PlatformError, match="connection was lost"):
                    await run

    ask()


@driven
async def test_refusals_are_certain() -> None:
    async with FakeHomeAssistant() as home, connected(home) as (platform, _):
        home.refuse("call_service", "unauthorized", "Unauthorized")
        assert await platform.perform(KITCHEN, Send("k", "x")) == Refused("Unauthorized (unauthorized)")
        home.refuse("call_service", "unknown_error", "Unknown error")
        assert await platform.perform(KITCHEN, Send("k", "x")) == Failed("Unknown error (unknown_error)")
        assert isinstance(await platform.perform(KITCHEN, Draft(1, "x")), Refused)
        home.refuse("fire_event", "unauthorized", "Unauthorized")
        assert isinstance(await platform.perform(KITCHEN, Send("k", "x")), Sent)


@driven
async def test_without_a_connection_nothing_is_done() -> None:
    async with FakeHomeAssistant() as home:
        platform = HomeAssistantPlatform(home.url, home.token)
        assert await platform.perform(KITCHEN, Send("k", "x")) == Failed("not connected")
        async with running(platform):
            assert isinstance(await platform.perform(KITCHEN, Send("k", "x")), Sent)


@driven
async def test_events_arrive_with_who_and_where() -> None:
    async with FakeHomeAssistant() as home, connected(home) as (_, inbox):
        await home.fire("something_else", {"text": "not for us"})
        await home.fire("tailrace_message", {"text": "hello", "user": "ada", "conversation_id": "kitchen"}, user="u1")
        await home.fire("tailrace_message", {"text": "hi"}, user="u1", context="c")
        await home.fire("tailrace_message", {"text": "hi again"}, user="u1", context="c")
        await home.fire("tailrace_message", {"text": "from an automation"})
        updates = [update for update in await inbox.wait_for(4) if isinstance(update, MessageReceived)]
        assert [(update.text, update.sender, update.place.chat) for update in updates] == [
            ("hello", Sender("ada"), "kitchen"),
            ("hi", Sender("u1"), "u1"),
            ("hi again", Sender("u1"), "u1"),
            ("from an automation", Sender("home"), "home"),
        ]
        assert len({update.update_id for update in updates}) == 4
        assert all(update.addressed for update in updates)


@driven
async def test_an_event_that_makes_no_sense_is_passed_over() -> None:
    async with FakeHomeAssistant() as home, connected(home) as (_, inbox):
        await home.fire("tailrace_message", {"words": "hello"})
        await home.fire("tailrace_message", {"text": ["hello"]})
        await home.fire("tailrace_message", {"text": "hello"})
        [update] = await inbox.wait_for(1)
        assert isinstance(update, MessageReceived)
        assert update.text == "hello"


@driven
async def test_nothing_is_subscribed_to_or_sent_before_it_is_running() -> None:
    async with FakeHomeAssistant() as home:
        await home.restart(start_s=None)
        platform, inbox = HomeAssistantPlatform(home.url, home.token), CollectingInbox()
        run = asyncio.ensure_future(platform.run(inbox))
        await home.until(lambda: home.called("get_config"))
        await asyncio.sleep(60)
        assert len(home.called("subscribe_events")) == 1, "the start"
        assert await platform.perform(KITCHEN, Send("k", "x")) == Failed("not connected")
        await home.start()
        await inbox.wait_connected()
        await home.fire("tailrace_message", {"text": "how warm is it"}, user="u1")
        [update] = await inbox.wait_for(1)
        assert update.sender == Sender("u1")
        run.cancel()
        await asyncio.wait([run])


@driven
async def test_the_fake_drops_what_comes_too_early_as_the_real_one_does() -> None:
    async with FakeHomeAssistant() as home:
        await home.restart(start_s=None)
        async with home_socket(home.url, home.token) as socket:
            reading = asyncio.ensure_future(anext(socket.events()))
            fired = await socket.command("fire_event", {"event_type": "tailrace_response", "event_data": {}})
            assert fired.success
            await home.start()
            await asyncio.sleep(1)
            assert not reading.done()
            reading.cancel()
        assert (home.fired, home.unheard) == ([], [Fired("tailrace_response", {})])


@driven
async def test_a_cut_between_the_notification_and_its_reply_is_told_once() -> None:
    async with FakeHomeAssistant() as home, reconnecting(home) as platform:
        home.lose("after")
        await show(platform, KITCHEN, "It is 21 degrees.", streaming=False)
        assert home.messages == ["It is 21 degrees."]
        assert [fired.data["text"] for fired in home.fired] == ["It is 21 degrees."]
        assert home.connections == 2


@driven
async def test_a_restart_of_home_assistant_ends_the_run_and_the_next_one_goes_on() -> None:
    async with FakeHomeAssistant() as home:
        platform = HomeAssistantPlatform(home.url, home.token)
        inbox = CollectingInbox()
        run = asyncio.ensure_future(platform.run(inbox))
        await inbox.wait_connected()
        await home.restart()
        with pytest.raises(PlatformError, match="connection was lost"):
            await run
        async with running(platform) as again:
            await home.fire("tailrace_message", {"text": "hello"})
            await again.wait_for(1)
        assert home.connections == 2


@driven
async def test_a_wrong_token_is_permanent_and_never_shown() -> None:
    async with FakeHomeAssistant() as home:
        platform = HomeAssistantPlatform(home.url, "wrong-token")
        with pytest.raises(PlatformError, match="token was refused") as refused:
            await platform.run(CollectingInbox())
        assert refused.value.permanent
        assert "wrong-token" not in str(refused.value)
        home.refuse("subscribe_events", "unauthorized", "Unauthorized")
        with pytest.raises(PlatformError, match="admin") as refused:
            await HomeAssistantPlatform(home.url, home.token).run(CollectingInbox())
        assert refused.value.permanent


@driven
async def test_a_home_that_is_not_there_is_said() -> None:
    async with FakeHomeAssistant() as home:
        url = home.url
        assert await HomeAssistantPlatform(url, home.token).check() == f"connected to {url}"
    with pytest.raises(PlatformError, match="no connection"):
        await HomeAssistantPlatform(url, home.token).run(CollectingInbox())


@driven
async def test_the_check_finds_a_token_that_may_not_listen_and_shows_no_password() -> None:
    async with FakeHomeAssistant() as home:
        with_password = home.url.replace("http://", "http://ada:secret@")
        assert await HomeAssistantPlatform(with_password, home.token).check() == f"connected to {home.url}"
        home.refuse("subscribe_events", "unauthorized", "Unauthorized")
        with pytest.raises(PlatformError, match="not an administrator's") as refused:
            await HomeAssistantPlatform(home.url, home.token).check()
        assert refused.value.permanent


@driven
async def test_an_address_with_a_path_and_a_ban_are_told_in_words() -> None:
    async with FakeHomeAssistant(ban_after=0) as home:
        with pytest.raises(PlatformError) as refused:
            await HomeAssistantPlatform(f"{home.url}/map", home.token).check()
        path = "its address ends with the port, it has no path"
        assert str(refused.value).endswith(f"no Home Assistant answers at {home.url}/map (status 404); {path}")
        with pytest.raises(PlatformError) as refused:
            await HomeAssistantPlatform(home.url, home.token).check()
        assert str(refused.value).endswith(
            f"{home.url} refuses this machine (403); is its address in Home Assistant's ip_bans.yaml?"
        )


@driven
async def test_a_home_without_tls_at_an_https_address_is_told_in_words() -> None:
    async with FakeHomeAssistant() as home:
        with pytest.raises(PlatformError, match="does not speak TLS; is its address http:// and not https://"):
            await HomeAssistantPlatform(home.url.replace("http:", "https:"), home.token).check()


@driven
async def test_commands_at_the_same_time_keep_their_numbers_in_order() -> None:
    async with FakeHomeAssistant() as home, connected(home) as (platform, _):
        places = [Place("homeassistant", str(number)) for number in range(50)]
        replies = await asyncio.gather(*(platform.perform(place, Send(place.chat, "x")) for place in places))
        assert all(isinstance(reply, Sent) for reply in replies)
        assert len(home.messages) == 50
