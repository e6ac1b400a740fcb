"""Whom a slash command is answered in private, where, and in which words."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from proof.platforms.slack import FakeSlack

from integrations.slack.slack_app import listening
from tailrace.delivery.port import LookUp, Place, Send, Sent, Unknown
from tailrace.integrations.slack.slash import MAX_REMEMBERED, ResponseUrls, why_not_here
from tailrace.testing.clock import driven
from tailrace.testing.platforms.loopback import Fault, bad_gateway, cut, json_fault, silence


def command(channel: str, user: str, url: str) -> dict[str, str]:
    return {"channel_id": channel, "user_id": user, "response_url": url}


def place(channel: str, user: str, thread: str = "") -> Place:
    return Place("slack", channel, thread, "group", {"user": user})


def test_a_command_is_answered_to_who_typed_it_once_and_in_no_thread() -> None:
    urls = ResponseUrls()
    urls.keep(command("C1", "U7", "old"))
    urls.keep(command("C1", "U7", "ours"))
    urls.keep(command("C1", "U8", "theirs"))
    urls.keep(command("C2", "U7", "elsewhere"))
    assert urls.take(place("C1", "U7", thread="1.1")) == ""
    assert [urls.take(place("C1", user)) for user in ("U7", "U7", "U8", "U9")] == ["ours", "", "theirs", ""]


def test_the_oldest_commands_are_forgotten_first() -> None:
    urls = ResponseUrls()
    for number in range(MAX_REMEMBERED + 1):
        urls.keep(command("C1", f"U{number}", f"url {number}"))
    assert [urls.take(place("C1", user)) for user in ("U0", "U1")] == ["", "url 1"]


@pytest.mark.parametrize(
    ("code", "channel", "told"),
    [
        ("not_in_channel", "C1", "Type `/invite @tailrace`"),
        ("channel_not_found", "G1", "Type `/invite @tailrace`"),  # a private one
        ("channel_not_found", "D1", "I am not in this conversation"),  # of two other people: nobody can be invited
        ("is_archived", "C1", "This channel is archived"),
        ("is_inactive", "D1", "I cannot write here (is_inactive)"),
    ],
)
def test_what_is_so_is_told_and_an_invitation_advised_where_it_helps(code: str, channel: str, told: str) -> None:
    where = Place("slack", channel, kind="private" if channel.startswith("D") else "group")
    text = why_not_here(code, where, "tailrace")
    assert told in text
    assert ("/invite" in text) == ("/invite" in told)


@pytest.mark.parametrize("fault", [silence(), silence(accepted=False), cut(), bad_gateway()])
@pytest.mark.parametrize("where", ["response_url", "chat.postEphemeral"])
@driven
async def test_G80_what_is_for_one_person_alone_and_may_have_been_shown_is_not_sent_again(
    where: str, fault: Fault
) -> None:
    async with FakeSlack() as slack, listening(slack) as (platform, inbox):
        general = slack.channel("C1")
        await slack.command(general, "/tailrace", "help", user="U9")
        [update] = await inbox.wait_for(1)
        if where == "chat.postEphemeral":
            slack.fail("response_url", json_fault(404, {"ok": False, "error": "expired_url"}))
        slack.fail(where, fault)
        to_one = replace(update.place, only_for="U9")
        assert isinstance(await platform.perform(to_one, Send("k", "Nothing is running.")), Unknown)
        assert len(slack.called("chat.postEphemeral")) == (where == "chat.postEphemeral")
        assert isinstance(await platform.perform(to_one, LookUp("k", "Nothing is running.")), Unknown)
        in_thread = replace(to_one, thread="1.1")
        assert not isinstance(await platform.perform(in_thread, LookUp("k", "Nothing is running.")), Unknown)


@pytest.mark.parametrize("fault", [None, json_fault(404, {"ok": False, "error": "expired_url"})])
@driven
async def test_what_is_for_one_person_alone_is_sent_at_the_commands_address_or_as_their_message(
    fault: Fault | None,
) -> None:
    async with FakeSlack() as slack, listening(slack) as (platform, inbox):
        general = slack.channel("C1")
        await slack.command(general, "/tailrace", "help", user="U9")
        [update] = await inbox.wait_for(1)
        if fault is not None:
            slack.fail("response_url", fault)
        to_one = replace(update.place, only_for="U9")
        assert isinstance(await platform.perform(to_one, Send("k", "`/model <name>`")), Sent)
        assert (general.whispers, general.texts) == ([("U9", "`/model <name>`")], [])
        assert len(slack.called("chat.postEphemeral")) == (fault is not None)
        assert isinstance(await platform.perform(to_one, Send("l", "again")), Sent)
        assert general.whispers[1:] == [("U9", "again")], "the address is used once"
