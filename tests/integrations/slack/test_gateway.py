"""The gateway with Slack alone, from the envelope to the closed stream: in process, and as a process that is killed."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest
from proof.platforms.slack import FakeSlack

from gateway.gateway_process import gateway_process, kill_9
from gateway.gateways import config_for, running_gateway
from integrations.slack.slack_gateway import TEXT, env_for, served, settings_for
from tailrace.app import open_app
from tailrace.gateway.chat_settings import PairedUser, Pairing
from tailrace.gateway.gateway import Gateway
from tailrace.testing.clock import driven
from tailrace.testing.provider import FaultyProvider, Scenario, call, reply


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
        assert [request.json()["messages"][-1]["content"] for request in provider.requests] == [
            *("[from U7]\n| is it up?", "[from U7]\n| next")
        ]


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
