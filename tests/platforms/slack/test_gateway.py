"""The gateway with Slack alone, from the envelope to the closed stream: in process, and as a process that is killed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from platforms.gateway_process import gateway_process, kill_9
from platforms.gateways import config_for, running_gateway
from tailrace.agent.session import TURN_KIND
from tailrace.app import open_app
from tailrace.platforms.runtime.chat_settings import PairedUser, Pairing
from tailrace.platforms.runtime.gateway import Gateway
from tailrace.platforms.slack.slash_commands import LATE, STRANGER
from tailrace.ports import RUNS_LIMIT, NewRun
from tailrace.testing.clock import driven
from tailrace.testing.platforms.loopback import Fault, bad_gateway, silence
from tailrace.testing.platforms.slack import FakeSlack, flood, refusal
from tailrace.testing.provider import FaultyProvider, Reply, Scenario, call, reply

TEXT = " ".join(f"word{number}" for number in range(60))


def settings_for(slack: FakeSlack, respond: str = "mentions") -> str:
    return f'slack: {{enabled: true, allow: ["U7", "U8"], respond: {respond}, base_url: "{slack.api_url}"}}'


def env_for(slack: FakeSlack) -> dict[str, str]:
    return {"SLACK_BOT_TOKEN": slack.token, "SLACK_APP_TOKEN": slack.app_token}


def asked_in(provider: FaultyProvider) -> list[str]:
    """What the people said in the newest request."""
    return [one["content"] for one in provider.requests[-1].json()["messages"] if one["role"] == "user"]


@asynccontextmanager
async def served(home: Path, *script: Reply | Scenario) -> AsyncIterator[tuple[FakeSlack, FaultyProvider]]:
    async with (
        FakeSlack() as slack,
        running_gateway(home, script, settings_for(slack), env_for(slack)) as (_, provider),
    ):
        yield slack, provider


@driven
async def test_a_question_is_answered_live_in_its_thread_and_G88_once(tmp_path: Path) -> None:
    slow = Scenario(reply=reply(TEXT), pace_s=0.2)
    async with served(tmp_path, slow, reply("A second answer.")) as (slack, provider):
        general = slack.channel("C1")
        first = await slack.write(general, "<@U0BOT> hello")  # which comes twice, as a message and as a mention
        await slack.until(lambda: general.texts == [TEXT] and not general.answers[0].state.streaming)
        assert len(general.answers[0].states) > 3
        assert general.statuses[0][0] == first
        await slack.write(general, "<@U0BOT> and now?", thread=first)
        await slack.until(lambda: len(general.texts) == 2 and not general.answers[1].state.streaming)
        assert general.texts == [TEXT, "A second answer."]
        assert {answer.thread_ts for answer in general.answers} == {first}
        assert len(provider.requests) == 2


@driven
async def test_in_a_thread_the_model_reads_who_speaks_and_slack_is_asked_once_for_each_name(tmp_path: Path) -> None:
    async with served(tmp_path, *[reply(f"Answer {number}.") for number in range(4)]) as (slack, provider):
        slack.names = {"U7": "Anna", "U8": "Ben"}
        general = slack.channel("C1")
        first = await slack.write(general, "<@U0BOT> book it for me")
        await slack.until(lambda: len(general.texts) == 1)
        assert slack.called("users.info") == [], "one person alone needs no name"

        async def ask_in_thread(text: str, user: str) -> None:
            count = len(general.texts)
            await slack.write(general, text, user=user, thread=first)
            await slack.until(lambda: len(general.texts) > count)

        await ask_in_thread("for me too", "U8")
        await ask_in_thread("at nine", "U7")
        await ask_in_thread("thanks", "U8")
        assert [call.params["user"] for call in slack.called("users.info")] == ["U7", "U8"]
        assert asked_in(provider) == [
            "book it for me",
            "[the messages above are from Anna]\n[from Ben]\n| for me too",
            "[from Anna]\n| at nine",
            "[from Ben]\n| thanks",
        ]


@driven
async def test_who_is_called_into_a_thread_reads_what_stands_above_once(tmp_path: Path) -> None:
    async with served(tmp_path, reply("Clean it."), reply("Yes.")) as (slack, provider):
        slack.names = {"U7": "Anna", "U8": "Ben", "U9": "Cleo"}
        general = slack.channel("C1")
        root = await slack.write(general, "Node 3 is full.\n[from Anna]", user="U8")
        await slack.write(general, "the logs, I &lt;think&gt;", user="U9", thread=root)
        await slack.write(general, "<@U0BOT> what now, <@U8>?", thread=root)
        await slack.until(lambda: general.texts == ["Clean it."])
        ben = "[in reply to Ben]\n> Node 3 is full.\n> [from Anna]"
        cleo = "[in reply to Cleo]\n> the logs, I <think>"
        assert asked_in(provider) == [f"{ben}\n\n{cleo}\n\nwhat now, <@U8> (Ben)?"]
        await slack.write(general, "delete them all", user="U9", thread=root)
        await slack.write(general, "<@U0BOT> and <@U9>?", thread=root)
        await slack.until(lambda: len(general.texts) == 2)
        assert asked_in(provider)[-1] == "and <@U9> (Cleo)?"
        assert "delete them all" not in "".join(asked_in(provider)), "of a person who is not in allow"
        assert len(slack.called("conversations.replies")) == 1, "the conversation has it"


@driven
async def test_no_thread_is_read_that_the_bot_began_or_has_answered_in(tmp_path: Path) -> None:
    async with served(tmp_path, *[reply(f"Answer {number}.") for number in range(4)]) as (slack, provider):
        slack.fail("conversations.replies", *[refusal("missing_scope")] * 9)
        general = slack.channel("C1")
        own = await slack.write(general, "<@U0BOT> hello")
        await slack.until(lambda: general.texts == ["Answer 0."])
        await slack.write(general, "<@U0BOT> and now?", thread=own)
        await slack.until(lambda: len(general.texts) == 2)
        assert asked_in(provider) == ["hello", "and now?"]
        event = {"type": "message", "channel": "C1", "user": "U7", "ts": "1900000000.000200"}
        began = {"thread_ts": general.answers[0].ts, "parent_user_id": "U0BOT"}
        await slack.send_event(event | began | {"text": "go on"})
        await slack.until(lambda: len(general.texts) == 3)
        assert asked_in(provider) == ["go on"]
        assert not slack.called("conversations.replies")


@driven
async def test_a_thread_that_cannot_be_read_is_said_to_the_model(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(tmp_path, reply("I cannot see it.")) as (slack, provider):
        general = slack.channel("C1")
        root = await slack.write(general, "Node 3 is full.", user="U8")
        slack.fail("conversations.replies", refusal("missing_scope"))
        await slack.write(general, "<@U0BOT> what now?", thread=root)
        await slack.until(lambda: len(general.texts) == 1)
        assert asked_in(provider) == ["[in reply to a thread that could not be read]\n\nwhat now?"]
    assert "slack: a thread in C1 could not be read (missing_scope)" in caplog.text


@driven
async def test_a_message_that_names_the_bot_once_it_is_edited_is_answered_once(tmp_path: Path) -> None:
    async with served(tmp_path, reply("Yes."), reply("Again.")) as (slack, provider):
        general = slack.channel("C1")
        ts = await slack.write(general, "is it up?")
        edited = {"type": "app_mention", "channel": "C1", "user": "U7", "ts": ts, "edited": {"user": "U7", "ts": "9.9"}}
        await slack.send_event(edited | {"text": "<@U0BOT> is it up?"})  # as Slack does, and nothing else
        await slack.until(lambda: general.texts == ["Yes."])
        await slack.send_event(edited | {"text": "<@U0BOT> is it up again?"})
        await slack.write(general, "<@U0BOT> next")
        await slack.until(lambda: general.texts == ["Yes.", "Again."])
        assert general.answers[0].thread_ts == ts
        assert [request.json()["messages"][-1]["content"] for request in provider.requests] == ["is it up?", "next"]


@pytest.mark.parametrize("fault", [refusal("missing_scope"), silence(), bad_gateway()])
@driven
async def test_a_name_that_slack_does_not_tell_is_an_id_and_holds_nobody_up(
    tmp_path: Path, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(tmp_path, reply("One."), reply("Two."), reply("Three.")) as (slack, provider):
        slack.names = {"U8": "Ben"}
        general = slack.channel("C1")
        slack.fail("users.info", fault)
        first = await slack.write(general, "<@U0BOT> book it for me")
        await slack.until(lambda: len(general.texts) == 1)
        await slack.write(general, "for me too", user="U8", thread=first)
        await slack.until(lambda: len(general.texts) == 2)
        assert asked_in(provider)[-1] == "[the messages above are from U7]\n[from Ben]\n| for me too"
        await slack.write(general, "at nine", thread=first)
        await slack.until(lambda: len(general.texts) == 3)
        assert len(slack.called("users.info")) == 2
    told = [one.getMessage() for one in caplog.records if "in place of people's names" in one.getMessage()]
    assert len(told) == 1
    assert ("users:read" in told[0]) == ("missing_scope" in told[0])


@driven
async def test_a_token_that_is_revoked_while_it_runs_is_told_until_it_is_taken_again(tmp_path: Path) -> None:
    async with FakeSlack() as slack, FaultyProvider() as provider:
        config = config_for(tmp_path, provider, settings_for(slack), env_for(slack))
        async with open_app(config, directory=tmp_path) as app, Gateway(app):
            await slack.until(lambda: slack.connections == 1)
            slack.app_token = "xapp-new"
            await slack.close_sockets()
            await slack.until(lambda: len(slack.called("apps.connections.open")) == 3, 600)
            assert app.degraded == {"slack": "the app-level token was refused (invalid_auth)"}
            slack.app_token = FakeSlack.app_token
            await slack.until(lambda: slack.connections == 2, 600)
            await slack.write(slack.channel("D1"), "/status")
            await slack.until(lambda: slack.channel("D1").texts, 600)
            assert app.degraded == {}


@driven
async def test_a_bot_token_that_is_revoked_is_told_though_the_socket_stays(tmp_path: Path) -> None:
    async with FakeSlack() as slack, FaultyProvider([reply(TEXT)]) as provider:
        config = config_for(tmp_path, provider, settings_for(slack), env_for(slack))
        async with open_app(config, directory=tmp_path) as app, Gateway(app):
            await slack.until(lambda: slack.connections == 1)
            slack.token = "xoxb-new"
            general = slack.channel("C1")
            await slack.write(general, "<@U0BOT> hello")
            await asyncio.sleep(60)
            waits = "answers wait: the token was refused (invalid_auth): set the app's new one and restart"
            assert app.degraded == {"slack": waits}
            slack.token = FakeSlack.token
            await slack.until(lambda: TEXT in general.texts, 600)
            await asyncio.sleep(1)
            assert (app.degraded, slack.connections) == ({}, 1)


@driven
async def test_sockets_that_slack_wants_replaced_at_once_are_opened_with_longer_and_longer_pauses(
    tmp_path: Path,
) -> None:
    async with FakeSlack() as slack:
        slack.replaced_at_once = 6
        async with running_gateway(tmp_path, (), settings_for(slack), env_for(slack)):
            await slack.until(lambda: slack.connections == 7, 600)
            opened = [call.at for call in slack.called("apps.connections.open")]
            pauses_s = [later - earlier for earlier, later in itertools.pairwise(opened)]
            assert pauses_s == sorted(pauses_s)
            assert (round(pauses_s[0]), pauses_s[5] > 20) == (1, True)
            await asyncio.sleep(120)
            slack.replaced_at_once = 1
            asked_at = asyncio.get_running_loop().time()
            await slack.ask_to_reconnect()
            await slack.until(lambda: slack.connections == 9, 600)
            replaced_at, after_pause_at = (call.at for call in slack.called("apps.connections.open")[-2:])
            assert replaced_at - asked_at < 0.5, "a socket that has lived is replaced without a pause"
            assert 0.5 < after_pause_at - replaced_at < 2, "and the pauses begin anew"


@driven
async def test_in_a_thread_commands_are_named_as_slack_lets_one_type_them(tmp_path: Path) -> None:
    async with served(tmp_path, reply(call("terminal", {"command": "rm -rf build"})), reply("It stays.")) as (slack, _):
        direct = slack.channel("D1")
        asked = await slack.write(direct, "clean up")
        await slack.until(lambda: direct.answers and direct.answers[0].buttons)
        await slack.write(direct, "yes", thread=asked)
        hint = "A question is open: answer it with @tailrace /approve or @tailrace /deny. See @tailrace /help."
        await slack.until(lambda: hint in direct.texts)
        await slack.write(direct, "<@U0BOT> /help", thread=asked)
        await slack.until(lambda: any(text.startswith("@tailrace /new begins") for text in direct.texts))
        await slack.write(direct, "<@U0BOT> /deny", thread=asked)
        await slack.until(lambda: "It stays." in direct.texts)


@driven
async def test_a_command_in_a_channel_without_the_bot_is_told_how_to_invite_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(tmp_path, reply(TEXT)) as (slack, _):
        general = slack.channel("C1")
        general.joined = False
        told = "I am not in this channel, so I cannot answer here. Type `/invite @tailrace`, then ask again."
        for typed in ("model fake/other", "what is a mill?"):
            await slack.command(general, "/tailrace", typed)
            await slack.until(lambda: general.whispers)
            assert general.whispers == [("U7", told)]
            general.whispers.clear()
        assert "slack: nothing can be written in C1 (not_in_channel)" in caplog.messages
        await slack.command(general, "/tailrace", "help")
        await slack.until(lambda: general.whispers)
        assert general.whispers[0][1].startswith("/tailrace new begins"), "what is for one person needs no member"
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


@pytest.mark.parametrize("typed", ["yolo", "what is a mill?"])
def test_who_types_a_command_in_an_archived_channel_is_told_that_it_is_archived(tmp_path: Path, typed: str) -> None:
    @driven
    async def ask() -> list[tuple[str, str]]:
        async with served(tmp_path) as (slack, _):
            general = slack.channel("C1")
            general.archived = True
            await slack.command(general, "/tailrace", typed)
            await slack.until(lambda: general.whispers)
            return general.whispers

    told = "This channel is archived, so I cannot answer here. Ask me in another channel or in a direct message."
    assert ask() == [("U7", told)]


@driven
async def test_while_it_ends_a_message_is_answered_so_and_nobody_connects_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with FakeSlack() as slack:
        direct = slack.channel("D1")
        async with running_gateway(tmp_path, (), settings_for(slack), env_for(slack)) as (gateway, _):
            await slack.until(lambda: slack.connections == 1)
            gateway.take_no_more()
            await slack.write(direct, "hello")
            await slack.until(lambda: direct.texts == ["⏸ Restarting; please ask this again afterwards."])
            await asyncio.sleep(60)
            assert (slack.connections, len(slack.acknowledged)) == (1, 1)
        assert not any("connecting again" in said for said in caplog.messages)


@driven
async def test_G89_a_paste_that_is_cut_is_one_question_though_each_part_could_have_a_thread(tmp_path: Path) -> None:
    async with served(tmp_path, reply("Read.")) as (slack, provider):
        direct = slack.channel("D1")
        first = await slack.write(direct, "x" * 4000)
        await slack.write(direct, "the end")
        await slack.until(lambda: direct.texts == ["Read."])
        assert direct.answers[0].thread_ts == first
        [request] = provider.requests
        assert request.json()["messages"][-1]["content"] == "x" * 4000 + "\nthe end"


@driven
async def test_J110_an_approval_is_a_button_for_the_requester_alone(tmp_path: Path) -> None:
    script = [reply("I will clean up.", call("terminal", {"command": "rm -rf build"})), reply("It is gone.")]
    (tmp_path / "build").mkdir()
    async with served(tmp_path, *script) as (slack, _):
        slack.names = {"U7": "Anna"}
        general = slack.channel("C1")
        await slack.write(general, "<@U0BOT> remove the build directory")
        await slack.until(lambda: any(message.state.buttons for message in general.answers))
        [question] = [message for message in general.answers if message.state.buttons]
        assert "rm -rf build" in question.text
        await slack.press(general, question, "Approve once", user="U8")
        await slack.until(lambda: any("Only Anna may answer" in text for text in general.texts))
        assert (tmp_path / "build").exists()
        await slack.command(general, "/tailrace", "approve", user="U8")
        await slack.until(lambda: general.whispers)
        assert general.whispers == [("U8", "No question of yours is open here.")]
        await slack.press(general, question, "Approve once", user="U7")
        await slack.until(lambda: "It is gone." in general.texts and not question.state.buttons)
        assert "Approved once" in question.text
        assert not (tmp_path / "build").exists()


@driven
async def test_a_reply_in_a_thread_with_our_answer_needs_no_mention(tmp_path: Path) -> None:
    async with served(tmp_path, reply("One."), reply("Two.")) as (slack, provider):
        general = slack.channel("C1")
        other = await slack.write(general, "lunch?", user="U8")
        first = await slack.write(general, "<@U0BOT> hello")
        await slack.until(lambda: general.texts == ["One."] and not general.answers[0].state.streaming)
        await slack.write(general, "at noon", thread=other)
        await slack.write(general, "and now?", thread=first)
        await slack.until(lambda: "Two." in general.texts)
        assert [answer.thread_ts for answer in general.answers] == [first, first]
        assert len(provider.requests) == 2, "people talk to each other elsewhere"


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
        await slack.until(lambda: any("/tailrace stop stops the answer" in text for _, text in general.whispers))


@driven
async def test_a_question_by_slash_command_is_shown_and_has_a_conversation_of_its_own(tmp_path: Path) -> None:
    async with served(tmp_path, reply("A secret."), reply("A mill.")) as (slack, provider):
        general = slack.channel("C1")
        await slack.command(general, "/tailrace", "keep it **secret**")
        await slack.until(lambda: "A secret." in general.texts)
        await slack.command(general, "/tailrace", "what is a mill?", user="U8")
        await slack.until(lambda: "A mill." in general.texts)
        shown = [(answer.text, answer.thread_ts, answer.state.markup) for answer in general.answers]
        first, _, second, _ = (answer.ts for answer in general.answers)
        assert shown == [
            ("name of U7: keep it **secret**", "", False),
            ("A secret.", first, True),
            ("name of U8: what is a mill?", "", False),
            ("A mill.", second, True),
        ]
        told = [message["content"] for message in provider.requests[1].json()["messages"] if message["role"] == "user"]
        assert told == ["what is a mill?"]


@driven
async def test_a_reply_to_a_slash_command_is_seen_by_all_only_where_it_is_about_all(tmp_path: Path) -> None:
    async with served(tmp_path) as (slack, _):
        general, direct = slack.channel("C1"), slack.channel("D1")

        async def command(typed: str) -> None:
            count = len(general.whispers) + len(general.texts)
            await slack.command(general, "/tailrace", f"/{typed}", user="U8")
            await slack.until(lambda: len(general.whispers) + len(general.texts) > count)

        for typed in ("status", "stop", "help", "approve", "model", "model nonsense", "verbose perhaps", "new"):
            await command(typed)
        assert general.texts == []
        assert {user for user, _ in general.whispers} == {"U8"}
        for typed in ("model fake/other", "verbose on", "yolo on"):
            await command(typed)
        assert (len(general.whispers), len(general.texts)) == (8, 3)
        await slack.command(direct, "/tailrace", "status")
        await slack.until(lambda: direct.texts)
        assert direct.whispers == [], "there is nobody else"


@driven
async def test_who_has_nothing_to_stop_is_told_whose_answers_are_under_way(tmp_path: Path) -> None:
    slow = Scenario(reply=reply(TEXT), pace_s=0.5)
    async with served(tmp_path, slow) as (slack, _):
        slack.names = {"U7": "Anna"}
        general = slack.channel("C1")
        asked = await slack.write(general, "<@U0BOT> hello")
        await slack.until(lambda: any(text.startswith("word0") for text in general.texts))
        await slack.command(general, "/tailrace", "stop", user="U8")
        await slack.until(lambda: general.whispers)
        of_anna = (
            "Nothing of yours is running here. Under way: an answer for Anna. "
            "Mention me with `/stop` in the thread to stop it."
        )
        assert general.whispers == [("U8", of_anna)]
        await slack.command(general, "/tailrace", "status", user="U8")
        await slack.until(lambda: len(general.whispers) == 2)
        assert general.whispers[1][1].splitlines()[-2:] == ["- running: nothing", "- running for others: Anna"]
        await slack.write(general, "<@U0BOT> /stop", user="U8", thread=asked)
        await slack.until(lambda: "⏹ Stopped." in general.texts)
        await slack.command(general, "/tailrace", "stop", user="U8")
        await slack.until(lambda: len(general.whispers) == 3)
        assert general.whispers[2] == ("U8", "Nothing is running.")


@pytest.mark.parametrize(("respond", "answered"), [("mentions", False), ("all", True)])
def test_what_is_said_to_somebody_else_in_a_thread_is_left_alone(tmp_path: Path, respond: str, answered: bool) -> None:
    @driven
    async def talk() -> None:
        script = (reply("One."), reply("Two."), reply("Three."))
        async with (
            FakeSlack() as slack,
            running_gateway(tmp_path, script, settings_for(slack, respond), env_for(slack)) as (_, provider),
        ):
            general = slack.channel("C1")
            asked = await slack.write(general, "<@U0BOT> hello")
            await slack.until(lambda: general.texts == ["One."])
            await slack.write(general, "<@U8> can you look?", thread=asked)
            if answered:
                await slack.until(lambda: "Two." in general.texts)
            await slack.write(general, "what does <@U8> say?", thread=asked)
            await slack.until(lambda: general.texts[-1] == ("Three." if answered else "Two."))
            read = [said for said in asked_in(provider) if "can you look?" in said]
            assert bool(read) == answered

    talk()


@driven
async def test_who_asks_by_slash_command_has_the_name_that_people_know(tmp_path: Path) -> None:
    async with served(tmp_path, reply("A mill."), reply("It is.")) as (slack, provider):
        slack.names = {"U7": "Anna", "U8": "Ben"}
        general = slack.channel("C1")
        await slack.command(general, "/tailrace", "what is a mill?")
        await slack.until(lambda: "A mill." in general.texts)
        shown = general.answers[0]
        assert shown.text == "Anna: what is a mill?"
        await slack.write(general, "is it old?", user="U8", thread=shown.ts)
        await slack.until(lambda: "It is." in general.texts)
        assert asked_in(provider)[-1] == "[the messages above are from Anna]\n[from Ben]\n| is it old?"


@driven
async def test_nobody_else_waits_while_a_thread_is_read(tmp_path: Path) -> None:
    async with served(tmp_path, reply("I cannot see it."), reply("Second.")) as (slack, provider):
        general = slack.channel("C1")
        root = await slack.write(general, "Node 3 is full.", user="U9")
        slack.fail("conversations.replies", silence())
        await slack.write(general, "<@U0BOT> what now?", thread=root)
        await slack.until(lambda: slack.called("conversations.replies"))
        began, confirmed = slack.now(), len(slack.acknowledged)
        await slack.command(general, "/tailrace", "status", user="U8")
        await slack.until(lambda: general.whispers and len(slack.acknowledged) > confirmed)
        assert slack.now() - began < 1
        assert provider.requests == [], "the thread is still being read"
        await slack.write(general, "and <@U0BOT> this?", user="U8", thread=root)
        await slack.until(lambda: "Second." in general.texts)
        assert asked_in(provider)[0].endswith("what now?"), "what happens in the thread keeps its order"


NOT_NOW = "Your question could not be shown here just now, so I have not taken it. Ask again in a moment."
NOT_HERE = "I cannot write here (restricted_action), so I cannot answer here. Ask me in a direct message."


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        pytest.param(refusal("restricted_action"), [NOT_HERE], id="refused"),
        pytest.param(flood(1), [NOT_NOW], id="flood"),
        pytest.param(silence(accepted=False), [LATE, NOT_NOW], id="silence"),
        pytest.param(bad_gateway(), [NOT_NOW], id="gateway"),
    ],
)
def test_a_question_that_cannot_be_shown_is_not_taken_and_who_asks_is_told(
    tmp_path: Path, fault: Fault, told: list[str]
) -> None:
    """Outside of threads everybody in the channel would share one conversation."""

    @driven
    async def ask() -> None:
        async with served(tmp_path) as (slack, provider):
            general = slack.channel("C1")
            slack.fail("chat.postMessage", fault)
            await slack.command(general, "/tailrace", "what is a mill?")
            await slack.until(lambda: general.whispers and slack.acknowledged)
            await asyncio.sleep(60)
            assert (general.whispers, general.texts, provider.requests) == ([("U7", text) for text in told], [], [])
            assert slack.timed_out == [], "Slack does not say that the app did not respond"

    ask()


@driven
async def test_G80_a_question_that_is_shown_without_a_reply_is_answered_below_it(tmp_path: Path) -> None:
    async with served(tmp_path, reply("A mill.")) as (slack, _):
        general = slack.channel("C1")
        slack.fail("chat.postMessage", silence())
        await slack.command(general, "/tailrace", "what is a mill?")
        await slack.until(lambda: "A mill." in general.texts)
        shown, answer = general.answers
        assert (shown.text, answer.thread_ts) == ("name of U7: what is a mill?", shown.ts)
        assert (general.whispers, slack.timed_out) == ([("U7", LATE)], [])


@driven
async def test_a_mistyped_slash_command_is_told_in_a_channel_too(tmp_path: Path) -> None:
    async with served(tmp_path) as (slack, provider):
        general = slack.channel("C1")
        await slack.command(general, "/tailrace", "stpo")
        await slack.until(lambda: general.whispers)
        told = "There is no such command. Did you mean /tailrace stop? See /tailrace help."
        assert (general.whispers, general.texts, provider.requests) == ([("U7", told)], [], [])


@driven
async def test_a_mistyped_command_to_the_bot_by_name_leaves_the_open_question_alone(tmp_path: Path) -> None:
    dangerous = reply(call("terminal", {"command": "rm -rf build"}))
    async with served(tmp_path, dangerous, reply("Done.")) as (slack, provider):
        general = slack.channel("C1")
        thread = await slack.write(general, "<@U0BOT> clean up")
        await slack.until(lambda: any(answer.buttons for answer in general.answers))
        await slack.write(general, "<@U0BOT> /aprove", thread=thread)
        told = "There is no such command. Did you mean @tailrace /approve? See @tailrace /help."
        await slack.until(lambda: told in general.texts)
        await slack.write(general, "<@U0BOT> /approve", thread=thread)
        await slack.until(lambda: "Done." in general.texts)
        assert len(provider.requests) == 2


@driven
async def test_who_is_let_in_is_listed_by_the_name_that_slack_tells(tmp_path: Path) -> None:
    async with FakeSlack() as slack, FaultyProvider() as provider:
        slack.names = {"U9": "Cleo"}
        config = config_for(tmp_path, provider, settings_for(slack), env_for(slack))
        async with open_app(config, directory=tmp_path) as app, Gateway(app):
            direct, pairing = slack.channel("D9"), Pairing(app.journal)
            await slack.write(direct, "hello", user="U9")
            await slack.until(lambda: direct.texts)
            [code] = (await pairing.codes.all()).values()
            await pairing.accept(code.code)
            assert await pairing.paired() == [PairedUser("slack:U9", "Cleo")]


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
        await slack.command(general, "/tailrace", "what is a mill?")
        asked = await slack.write(general, "<@U0BOT> hello")
        await slack.until(lambda: sum(text.startswith("word0") for text in general.texts) == 2)
        await slack.command(general, "/tailrace", "stop")
        await slack.until(lambda: general.texts.count("⏹ Stopped.") == 2 and general.whispers)
        threads = {answer.thread_ts for answer in general.answers if answer.text == "⏹ Stopped."}
        assert threads == {asked, general.answers[0].ts}
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
        await slack.command(general, "/tailrace", "yolo")
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


async def test_G77_after_kill_9_in_mid_stream_the_same_message_is_completed(tmp_path: Path) -> None:
    slow, rest = Scenario(reply=reply(TEXT), pace_s=0.2), reply(" And that is the end of it.")
    async with FakeSlack() as slack, FaultyProvider([slow, rest]) as provider:
        direct = slack.channel("D1")
        config_for(tmp_path, provider, settings_for(slack), {}, store="sqlite:///tailrace.db")
        async with gateway_process(tmp_path, env_for(slack)) as first:
            await slack.write(direct, "hello")
            await slack.until(lambda: direct.answers and len(direct.answers[0].states) >= 4)
            await kill_9(first)
        async with gateway_process(tmp_path, env_for(slack)):
            await slack.until(lambda: direct.texts and direct.texts[-1].endswith("the end of it."))
            await slack.until(lambda: not direct.answers[0].state.streaming)
        assert len(direct.answers) == 1
        assert len(provider.requests) == 2
