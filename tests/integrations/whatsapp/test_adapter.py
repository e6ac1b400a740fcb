"""The WhatsApp adapter against the fake Cloud API: each action and its reply, and the access token."""

from __future__ import annotations

import asyncio
import logging

import pytest
from proof.platforms.whatsapp import failure

from integrations.whatsapp.whatsapp_number import ADA, deliver, fake, number
from tailrace.delivery.port import Accepted, AnyReply, Failed, Flood, Refused, Send, Sent, TooLong, Typing, Unknown
from tailrace.errors import PlatformError
from tailrace.testing.clock import driven
from tailrace.testing.platforms.collecting_inbox import CollectingInbox, running
from tailrace.testing.platforms.loopback import Fault, bad_gateway, cut, json_fault, silence

UNDELIVERABLE = (
    "it cannot be delivered: the person has blocked this number, has no WhatsApp any more, or a very old one (131026)"
)


@driven
async def test_an_answer_is_sent_in_whatsapps_markup() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        ada = whatsapp.person("15550001")
        ada.window_open = True
        reply = await platform.perform(ADA, Send("k", "**bold** and `code` 👩‍🚀"))
        assert reply == Sent(ada.bubbles[0].id)
        assert ada.texts == ["*bold* and `code` 👩‍🚀"]


@driven
async def test_one_request_marks_the_question_as_read_and_shows_typing() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        ada, inbox = whatsapp.person("15550001"), CollectingInbox()
        await deliver(whatsapp, platform, inbox, whatsapp.message(ada, "hello"))
        assert await platform.perform(inbox.updates[0].place, Typing()) == Accepted()
        assert (ada.read, len(ada.typing), len(whatsapp.calls)) == (["wamid.in-1"], 1, 1)
        assert await platform.perform(ADA, Typing()) == Accepted()  # no question is known: nothing to mark
        assert len(whatsapp.calls) == 1


@pytest.mark.parametrize(
    ("fault", "reply"),
    [
        pytest.param(failure(131056, "pair"), Flood(6.0), id="G78-pair"),
        pytest.param(failure(130429, "throughput", status=429), Flood(5.0), id="G78-throughput"),
        pytest.param(failure(999, "app", status=429), Flood(60.0), id="G78-by-status"),
        pytest.param(
            failure(100, "Param text['body'] must be at most 4096 characters long."), TooLong(), id="G82-too-long"
        ),
        pytest.param(failure(131000, "Something went wrong", status=500), Failed("Something went wrong (131000)")),
        pytest.param(failure(131021, "Message undeliverable"), Refused("Message undeliverable (131021)")),
        pytest.param(failure(131026, "Message undeliverable"), Refused(UNDELIVERABLE)),
    ],
)
def test_replies(fault: Fault, reply: AnyReply) -> None:
    @driven
    async def ask() -> AnyReply:
        async with fake() as whatsapp, number(whatsapp) as platform:
            whatsapp.fail("messages", fault)
            return await platform.perform(ADA, Send("k", "hello"))

    assert ask() == reply


@pytest.mark.parametrize("data", ["text", {"blame_field_specs": [["to"]]}, {"details": 7}, None])
def test_a_refusal_is_certain_whatever_data_comes_with_it(data: object) -> None:
    @driven
    async def ask() -> AnyReply:
        async with fake() as whatsapp, number(whatsapp) as platform:
            error = {"message": "(#131021) Undeliverable", "code": 131021, "error_data": data}
            whatsapp.fail("messages", json_fault(400, {"error": error}))
            return await platform.perform(ADA, Send("k", "hello"))

    assert ask() == Refused("(#131021) Undeliverable (131021)")


@driven
async def test_text_that_grows_past_the_limit_when_written_out_is_never_sent() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        table = "| a | b |\n|---|---|\n" + f"| {'x' * 100} | y |\n" + "| 1 | 2 |\n" * 380
        assert len(table) < 4096
        assert await platform.perform(ADA, Send("k", table)) == TooLong()
        assert whatsapp.calls == []


@pytest.mark.parametrize("fault", [silence(), cut(), bad_gateway(accepted=True)])
def test_G80_a_send_without_a_reply_is_known_by_its_status(fault: Fault) -> None:
    @driven
    async def ask() -> None:
        async with fake() as whatsapp, number(whatsapp) as platform, asyncio.TaskGroup() as group:
            ada = whatsapp.person("15550001")
            ada.window_open = True
            whatsapp.fail("messages", fault)
            sending = group.create_task(platform.perform(ADA, Send("k", "hello")))
            await whatsapp.until(lambda: ada.bubbles)
            for key, message_id in (("another", "wamid.x"), ("k", ada.bubbles[0].id)):
                await deliver(whatsapp, platform, CollectingInbox(), whatsapp.taken(ada, message_id, key))
            assert await sending == Sent(ada.bubbles[0].id)

    ask()


def test_G80_a_send_that_no_status_tells_of_is_said_to_the_operator(caplog: pytest.LogCaptureFixture) -> None:
    @driven
    async def ask() -> AnyReply:
        async with fake() as whatsapp, number(whatsapp) as platform:
            whatsapp.person("15550001").window_open = True
            whatsapp.fail("messages", bad_gateway())
            return await platform.perform(ADA, Send("k", "hello"))

    why = "status 502, and no answer of WhatsApp's"
    with caplog.at_level(logging.WARNING, "tailrace.integrations.whatsapp"):
        assert ask() == Unknown(why)
    said = f"whether a message to 15550001 was sent is not known: {why}"
    assert [record.getMessage() for record in caplog.records] == [said]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (131047, "this person has not written for 24 hours: WhatsApp takes no answer until they write again (131047)"),
        (131021, "Undeliverable (131021)"),
        (None, "no reason given"),
    ],
)
def test_G80_a_send_without_a_reply_that_failed_is_refused_with_the_reason(
    code: int | None, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    @driven
    async def ask() -> AnyReply:
        async with fake() as whatsapp, number(whatsapp) as platform, asyncio.TaskGroup() as group:
            ada = whatsapp.person("15550001")
            whatsapp.fail("messages", bad_gateway())
            sending = group.create_task(platform.perform(ADA, Send("k", "hello")))
            await whatsapp.until(lambda: whatsapp.calls)
            body = whatsapp.not_delivered(ada, code, "Undeliverable", key="k")
            await deliver(whatsapp, platform, CollectingInbox(), body)
            return await sending

    assert ask() == Refused(reason, until_heard=code == 131047)
    assert [record.getMessage() for record in caplog.records] == [f"a message to 15550001 was not delivered: {reason}"]


def test_the_closed_24_hour_window_is_said_to_the_operator(caplog: pytest.LogCaptureFixture) -> None:
    @driven
    async def ask() -> None:
        async with fake() as whatsapp, number(whatsapp) as platform:
            ada = whatsapp.person("15550001")
            reply = await platform.perform(ADA, Send("k", "hello"))
            assert isinstance(reply, Refused)
            assert "has not written for 24 hours" in reply.reason
            assert reply.until_heard
            inbox = CollectingInbox()
            body = whatsapp.not_delivered(ada, 131047, "Re-engagement message")
            assert await deliver(whatsapp, platform, inbox, body) == 200
            assert inbox.updates == []

    with caplog.at_level(logging.WARNING, "tailrace.integrations.whatsapp"):
        ask()
    assert [record.getMessage().count("24 hours") for record in caplog.records] == [1, 1]
    assert all("15550001" in record.getMessage() for record in caplog.records)


@driven
async def test_the_pair_limit_is_a_burst_of_ten_and_ten_a_minute() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        whatsapp.person("15550001").window_open = True
        replies = [await platform.perform(ADA, Send("k", "hello")) for _ in range(11)]
        assert [type(reply) for reply in replies] == [Sent] * 10 + [Flood]


@driven
async def test_doctor_hears_the_number_or_what_is_wrong_with_the_token() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        assert await platform.check() == "+1 555 0000 (Tailrace Test)"
        for subcode, told in ((0, "the access token is not valid: "), (463, "the access token has expired: ")):
            error = {"message": "Error validating access token", "code": 190, "error_subcode": subcode}
            whatsapp.fail("get", json_fault(401, {"error": error}))
            with pytest.raises(PlatformError, match=told) as refused:
                await platform.check()
            assert refused.value.permanent
        whatsapp.fail("get", failure(100, "Unsupported get request", status=404))
        told = rf"no number has the phone_number_id {whatsapp.phone_number_id}, .*Unsupported get request \(100\)"
        with pytest.raises(PlatformError, match=told):
            await platform.check()


@driven
async def test_a_wrong_token_is_said_at_the_start_and_a_right_one_is_connected() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        inbox = CollectingInbox()
        whatsapp.fail("get", failure(190, "Invalid OAuth access token", status=401))
        with pytest.raises(PlatformError, match="access token") as refused:
            await platform.run(inbox)
        assert (refused.value.permanent, inbox.connections) == (True, 0)
    async with fake() as whatsapp, number(whatsapp) as platform, running(platform) as inbox:
        assert inbox.connections == 1


@driven
async def test_an_address_where_nothing_listens_is_said_in_words_of_the_system() -> None:
    whatsapp = fake()
    await whatsapp.close()  # its port is 0
    async with number(whatsapp) as platform:
        with pytest.raises(PlatformError, match=r"no connection to 127\.0\.0\.1:0: "):
            await platform.check()


@driven
async def test_a_token_that_expires_later_ends_the_connection_and_not_the_webhook() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        ada, inbox = whatsapp.person("15550001"), CollectingInbox()
        run = asyncio.ensure_future(platform.run(inbox))
        await inbox.wait_connected()
        whatsapp.token = "another"
        assert isinstance(await platform.perform(ADA, Send("k", "hello")), Failed)
        with pytest.raises(PlatformError, match="the access token is not valid") as told:
            await run
        assert told.value.permanent
        assert await deliver(whatsapp, platform, inbox, whatsapp.message(ada, "hello")) == 200
        assert len(inbox.updates) == 1
