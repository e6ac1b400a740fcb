"""The slash command through the gateway: what it does to the chat, and who reads the answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from proof.platforms.slack import FakeSlack

from gateway.gateways import config_for
from integrations.slack.slack_gateway import TEXT, env_for, served, settings_for
from tailrace.agent.session import TURN_KIND
from tailrace.app import open_app
from tailrace.gateway.gateway import Gateway
from tailrace.integrations.slack.slash import STRANGER
from tailrace.ports import RUNS_LIMIT, NewRun
from tailrace.testing.clock import driven
from tailrace.testing.provider import FaultyProvider, Scenario, reply


@driven
async def test_a_command_in_a_channel_without_the_bot_is_told_how_to_invite_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(tmp_path, reply(TEXT)) as (slack, _):
        general = slack.channel("C1")
        general.joined = False
        told = "I am not in this channel, so I cannot answer here. Type `/invite @tailrace`, then ask again."
        await slack.command(general, "/tailrace", "model fake/other")
        await slack.until(lambda: general.whispers)
        assert general.whispers == [("U7", told)]
        general.whispers.clear()
        assert "slack: nothing can be written in C1 (not_in_channel)" in caplog.messages
        await slack.command(general, "/tailrace", "help")
        await slack.until(lambda: general.whispers)
        assert general.whispers[0][1].startswith("/tailrace new: begin"), "what is for one person needs no member"
        assert general.texts == []


@driven
async def test_a_stranger_who_types_the_command_in_a_channel_is_told_so_in_private(tmp_path: Path) -> None:
    async with served(tmp_path) as (slack, provider):
        general = slack.channel("C1")
        for typed in ("help", "what is a mill?"):
            await slack.command(general, "/tailrace", typed, user="U9")
        await slack.until(lambda: len(general.whispers) == len(slack.acknowledged) == 2)
        assert general.whispers == [("U9", STRANGER)] * 2
        await slack.command(slack.channel("D9"), "/tailrace", "help", user="U9")
        await slack.until(lambda: slack.channel("D9").texts)
        assert slack.channel("D9").whispers == [], "a code is enough"
        assert (general.texts, provider.requests) == ([], [])


@driven
async def test_each_person_is_told_of_their_own_command_in_private(tmp_path: Path) -> None:
    async with served(tmp_path) as (slack, _):
        general = slack.channel("C1")
        general.joined = False
        for user in ("U7", "U8"):
            await slack.command(general, "/tailrace", "help", user=user)
        await slack.until(lambda: len(general.whispers) == 2)
        assert sorted(user for user, _ in general.whispers) == ["U7", "U8"]


def test_who_types_a_command_in_an_archived_channel_is_told_that_it_is_archived(tmp_path: Path) -> None:
    @driven
    async def ask() -> list[tuple[str, str]]:
        async with served(tmp_path) as (slack, _):
            general = slack.channel("C1")
            general.archived = True
            await slack.command(general, "/tailrace", "yolo on")
            await slack.until(lambda: general.whispers)
            return general.whispers

    told = "This channel is archived, so I cannot answer here. Ask me in another channel or in a direct message."
    assert ask() == [("U7", told)]


@driven
async def test_the_slash_command_speaks_of_every_thread_of_the_chat(tmp_path: Path) -> None:
    slow = Scenario(reply=reply(TEXT), pace_s=0.5)
    async with served(tmp_path, slow, reply("Fine.")) as (slack, provider):
        general = slack.channel("C1")
        await slack.command(general, "/tailrace", "model fake/other")
        await slack.until(lambda: "The model is `fake/other` from now on." in general.texts)
        await slack.write(general, "<@U0BOT> hello")
        await slack.until(lambda: any(text.startswith("word0") for text in general.texts))
        assert provider.requests[0].json()["model"] == "other"
        await slack.command(general, "/tailrace", "stop")
        await slack.until(lambda: "⏹ Stopped." in general.texts)
        await slack.until(lambda: not any(answer.state.streaming for answer in general.answers))
        assert not any(text.endswith("word59") for text in general.texts)
        await slack.command(general, "/tailrace", "help")
        await slack.until(lambda: any("/tailrace stop: stop the answer" in text for _, text in general.whispers))


@driven
async def test_a_reply_to_a_slash_command_is_seen_by_all_only_where_it_is_about_all(tmp_path: Path) -> None:
    async with served(tmp_path) as (slack, _):
        general, direct = slack.channel("C1"), slack.channel("D1")

        async def command(typed: str) -> None:
            count = len(general.whispers) + len(general.texts)
            await slack.command(general, "/tailrace", typed, user="U8")
            await slack.until(lambda: len(general.whispers) + len(general.texts) > count)

        for typed in ("status", "stop", "help", "approve", "model", "model nonsense", "new", "what is a mill?"):
            await command(typed)
        assert general.texts == []
        assert {user for user, _ in general.whispers} == {"U8"}
        for typed in ("model fake/other", "yolo on"):
            await command(typed)
        assert (len(general.whispers), len(general.texts)) == (8, 2)
        await slack.command(direct, "/tailrace", "status")
        await slack.until(lambda: direct.texts)
        assert direct.whispers == [], "there is nobody else"


@driven
async def test_who_has_nothing_to_stop_stops_nobody_elses_answer(tmp_path: Path) -> None:
    slow = Scenario(reply=reply(TEXT), pace_s=0.5)
    async with served(tmp_path, slow) as (slack, _):
        slack.names = {"U7": "Anna"}
        general = slack.channel("C1")
        asked = await slack.write(general, "<@U0BOT> hello")
        await slack.until(lambda: any(text.startswith("word0") for text in general.texts))
        await slack.command(general, "/tailrace", "stop", user="U8")
        await slack.until(lambda: general.whispers)
        assert general.whispers == [("U8", "Nothing of yours is running.")]
        await slack.command(general, "/tailrace", "status", user="U8")
        await slack.until(lambda: len(general.whispers) == 2)
        assert general.whispers[1][1].splitlines()[-1] == "- running: nothing"
        await slack.write(general, "<@U0BOT> /stop", user="U8", thread=asked)
        await slack.until(lambda: "⏹ Stopped." in general.texts)
        await slack.command(general, "/tailrace", "stop", user="U8")
        await slack.until(lambda: len(general.whispers) == 3)
        assert general.whispers[2] == ("U8", "Nothing of yours is running.")


@driven
async def test_a_mistyped_slash_command_is_told_in_a_channel_too(tmp_path: Path) -> None:
    async with served(tmp_path) as (slack, provider):
        general = slack.channel("C1")
        await slack.command(general, "/tailrace", "stpo")
        await slack.until(lambda: general.whispers)
        told = "There is no such command. Did you mean /tailrace stop? See /tailrace help."
        assert (general.whispers, general.texts, provider.requests) == ([("U7", told)], [], [])


@driven
async def test_a_stranger_to_whom_nothing_is_answered_has_no_question_shown(tmp_path: Path) -> None:
    async with served(tmp_path) as (slack, _):
        general = slack.channel("C1")
        await slack.command(general, "/tailrace", "what is a mill?", user="U9")
        await slack.until(lambda: slack.acknowledged)
        assert general.texts == []


@driven
async def test_the_slash_command_stops_what_it_has_asked_and_marks_each_thread_that_it_stops(tmp_path: Path) -> None:
    slow = Scenario(reply=reply(TEXT), pace_s=0.5)
    async with served(tmp_path, slow, slow) as (slack, _):
        general = slack.channel("C1")
        other = await slack.write(general, "<@U0BOT> what is a mill?")
        asked = await slack.write(general, "<@U0BOT> hello")
        await slack.until(lambda: sum(text.startswith("word0") for text in general.texts) == 2)
        await slack.command(general, "/tailrace", "stop")
        await slack.until(lambda: general.texts.count("⏹ Stopped.") == 2 and general.whispers)
        threads = {answer.thread_ts for answer in general.answers if answer.text == "⏹ Stopped."}
        assert threads == {asked, other}
        assert general.whispers == [("U7", "⏹ Stopped.")]
        await slack.command(general, "/tailrace", "status")
        await slack.until(lambda: "- running: nothing" in general.whispers[-1][1])
        assert not any("▌" in text or text.endswith("word59") for text in general.texts)


@driven
async def test_a_command_outside_of_threads_finds_an_answer_behind_many_of_others(tmp_path: Path) -> None:
    slow = Scenario(reply=reply(TEXT), pace_s=0.5)
    async with FakeSlack() as slack, FaultyProvider([slow]) as provider:
        config = config_for(tmp_path, provider, settings_for(slack), env_for(slack))
        async with open_app(config, directory=tmp_path) as app, Gateway(app) as gateway:
            general = slack.channel("C1")
            await slack.write(general, "<@U0BOT> hello")
            await slack.until(lambda: any(text.startswith("word0") for text in general.texts))
            for _ in range(RUNS_LIMIT + 1):
                await app.journal.start(NewRun(TURN_KIND, session="elsewhere"), "another", lease_s=3600)
            await slack.command(general, "/tailrace", "stop")
            await slack.until(lambda: "⏹ Stopped." in general.texts)
            gateway.take_no_more()


@driven
async def test_the_slash_command_for_a_new_conversation_ends_no_other(tmp_path: Path) -> None:
    slow = Scenario(reply=reply(TEXT), pace_s=0.2)
    async with served(tmp_path, slow, reply("Anew.")) as (slack, _):
        general = slack.channel("C1")
        first = await slack.write(general, "<@U0BOT> hello")
        await slack.until(lambda: any(text.startswith("word0") for text in general.texts))
        await slack.command(general, "/tailrace", "new")
        await slack.until(lambda: general.whispers)
        assert general.whispers == [("U7", "Here every question begins a conversation of its own.")]
        await slack.command(general, "/tailrace", "yolo on")
        everywhere = (
            "⚠️ Everything is approved without asking in every conversation of this chat. /tailrace yolo off ends that."
        )
        await slack.until(lambda: everywhere in general.texts)
        await slack.until(
            lambda: TEXT in general.texts and not any(answer.state.streaming for answer in general.answers)
        )
        await slack.write(general, "<@U0BOT> /new", thread=first)
        await slack.until(lambda: any(text.startswith("A new conversation begins.") for text in general.texts))
        await slack.write(general, "and now?", thread=first)
        await slack.until(lambda: "Anew." in general.texts)
