"""Which calls of the webhook are taken: the signature, the window of time, and the verify token."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging

import pytest

from integrations.whatsapp.whatsapp_number import ADA, NOW, deliver, fake, number, post
from tailrace.delivery.port import HookRequest, MessageReceived, Place, Sender
from tailrace.integrations.whatsapp.adapter import HOOK_PATH
from tailrace.integrations.whatsapp.inbound import REPLAY_WINDOW_S, is_signed
from tailrace.testing.clock import driven
from tailrace.testing.platforms.collecting_inbox import CollectingInbox


@driven
async def test_a_signed_message_arrives() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        ada, inbox = whatsapp.person("15550001", "Ada"), CollectingInbox()
        assert await deliver(whatsapp, platform, inbox, whatsapp.message(ada, "hello")) == 200
        place = Place("whatsapp", "15550001", extra={"message": "wamid.in-1"})
        sender = Sender("15550001", "Ada")
        assert inbox.updates == [MessageReceived("wamid.in-1", place, sender, "hello", message_id="wamid.in-1")]
        assert place.key == ADA.key


@driven
async def test_J120_only_the_raw_body_with_its_own_signature_is_taken() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        ada, inbox = whatsapp.person("15550001"), CollectingInbox()
        body = whatsapp.message(ada, "hello")
        good = whatsapp.signature(body)
        for given in ("", good[:-1], good.removeprefix("sha256="), good.replace("sha256", "sha1"), "sha256=ü"):
            assert (await post(platform, inbox, body, {"x-hub-signature-256": given})).status == 401
        assert (await post(platform, inbox, body, {})).status == 401
        same_values = body.replace(b":", b": ", 1)  # the same JSON in other bytes
        assert (await post(platform, inbox, same_values, {"x-hub-signature-256": good})).status == 401
        assert inbox.updates == []
        assert (await post(platform, inbox, body, {"x-hub-signature-256": good})).status == 200
        assert len(inbox.updates) == 1


@pytest.mark.parametrize(
    ("age_s", "taken", "status", "said"),
    [
        (0, 1, 200, ""),
        (REPLAY_WINDOW_S - 60, 1, 200, ""),
        (REPLAY_WINDOW_S + 60, 0, 200, "a message of 15550001 is passed over: it is older than 24 hours"),
        (-3600, 1, 200, ""),  # our clock is behind
    ],
)
def test_J120_a_kept_body_is_not_taken_outside_of_the_window(
    age_s: float, taken: int, status: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    @driven
    async def ask() -> None:
        async with fake() as whatsapp, number(whatsapp, now_s=NOW + age_s) as platform:
            inbox = CollectingInbox()
            body = whatsapp.message(whatsapp.person("15550001"), "hello")
            assert await deliver(whatsapp, platform, inbox, body) == status
            assert len(inbox.updates) == taken

    with caplog.at_level(logging.WARNING, "tailrace.integrations.whatsapp"):
        ask()
    assert [said in record.getMessage() for record in caplog.records] == [True] * bool(said)


@pytest.mark.parametrize("timestamp", ["soon", "", "1" * 5000])
def test_a_timestamp_that_is_no_number_is_told_as_that(timestamp: str, caplog: pytest.LogCaptureFixture) -> None:
    @driven
    async def ask() -> None:
        async with fake() as whatsapp, number(whatsapp) as platform:
            inbox = CollectingInbox()
            body = whatsapp.message(whatsapp.person("15550001"), "hello", timestamp=timestamp)
            assert await deliver(whatsapp, platform, inbox, body) == 200
            assert inbox.updates == []

    with caplog.at_level(logging.WARNING, "tailrace.integrations.whatsapp"):
        ask()
    [told] = [record.getMessage() for record in caplog.records]
    assert told.startswith(f"a message of 15550001 is passed over: its timestamp is no number: '{timestamp[:39]}")


@driven
async def test_what_is_not_taken_is_asked_for_again() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        inbox = CollectingInbox()
        inbox.closed = True
        body = whatsapp.message(whatsapp.person("15550001"), "hello")
        assert await deliver(whatsapp, platform, inbox, body) == 503


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"entry": 1}',
        b'{"entry": [{"changes": [{}]}]}',
        b"\xff",
        b'{"entry": [{"changes": [{"value": {}, "field": "\xff"}]}]}',
        pytest.param(b'{"more": ' + b"[" * 100_000, id="deep"),
    ],
)
def test_a_signed_body_that_makes_no_sense_is_refused(body: bytes) -> None:
    @driven
    async def ask() -> None:
        async with fake() as whatsapp, number(whatsapp) as platform:
            inbox = CollectingInbox()
            assert await deliver(whatsapp, platform, inbox, body) == 400
            assert inbox.updates == []

    ask()


@driven
async def test_the_address_is_verified_with_the_token() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:

        async def ask(query: dict[str, str]) -> tuple[int, bytes]:
            answer = await platform.hook(HookRequest("GET", HOOK_PATH, query, {}, b""), CollectingInbox())
            return answer.status, answer.body

        good = {"hub.mode": "subscribe", "hub.verify_token": whatsapp.verify_token, "hub.challenge": "1158201444"}
        assert await ask(good) == (200, b"1158201444")
        assert await ask(good | {"hub.verify_token": "ü"}) == (403, b"")
        assert await ask(good | {"hub.mode": "unsubscribe"}) == (403, b"")
        assert await ask({}) == (403, b"")


def test_a_wrong_secret_or_verify_token_is_said_to_the_operator_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    @driven
    async def ask() -> None:
        async with fake() as whatsapp, number(whatsapp) as platform:
            for pause_s in (0, 0, 61):
                await asyncio.sleep(pause_s)
                for headers in ({}, {"x-hub-signature-256": "sha256=00"}):
                    assert (await post(platform, CollectingInbox(), b"{}", headers)).status == 401
                query = {"hub.mode": "subscribe", "hub.verify_token": "another"}
                request = HookRequest("GET", HOOK_PATH, query, {}, b"")
                assert (await platform.hook(request, CollectingInbox())).status == 403

    with caplog.at_level(logging.WARNING, "tailrace.integrations.whatsapp"):
        ask()
    assert [record.getMessage() for record in caplog.records] == 2 * [
        "a call of WhatsApp's webhook has no signature: it is not Meta's, or a proxy drops X-Hub-Signature-256",
        "a call of WhatsApp's webhook is not signed with app_secret_env: is that secret this app's?",
        "WhatsApp's webhook was asked for with another verify token than verify_token_env holds",
    ]


def test_a_browser_or_a_probe_at_the_webhook_is_no_wrong_verify_token(caplog: pytest.LogCaptureFixture) -> None:
    @driven
    async def ask() -> int:
        async with fake() as whatsapp, number(whatsapp) as platform:
            return (await platform.hook(HookRequest("GET", HOOK_PATH, {}, {}, b""), CollectingInbox())).status

    with caplog.at_level(logging.WARNING, "tailrace.integrations.whatsapp"):
        assert ask() == 403
    assert caplog.records == []


@pytest.mark.parametrize("secret", ["", " ", "\n"])
def test_M151_an_empty_app_secret_verifies_nothing(secret: str) -> None:
    signature = hmac.digest(secret.encode(), b"{}", hashlib.sha256).hex()
    assert not is_signed(b"{}", f"sha256={signature}", secret)
