"""The gateway in threads of channels: who is heard there, what the model reads, and how commands are named."""

from __future__ import annotations

from pathlib import Path

import pytest
from proof.platforms.slack import FakeSlack, refusal

from gateway.gateways import running_gateway
from integrations.slack.slack_gateway import asked_in, env_for, served, settings_for
from tailrace.testing.clock import driven
from tailrace.testing.platforms.loopback import Fault, bad_gateway, silence
from tailrace.testing.provider import call, reply


@driven
async def test_in_a_thread_the_model_reads_who_speaks_and_slack_is_asked_once_for_each_name(tmp_path: Path) -> None:
    async with served(tmp_path, *[reply(f"Answer {number}.") for number in range(4)]) as (slack, provider):
        slack.names = {"U7": "Anna", "U8": "Ben"}
        general = slack.channel("C1")
        first = await slack.write(general, "<@U0BOT> book it for me")
        await slack.until(lambda: len(general.texts) == 1)

        async def ask_in_thread(text: str, user: str) -> None:
            count = len(general.texts)
            await slack.write(general, text, user=user, thread=first)
            await slack.until(lambda: len(general.texts) > count)

        await ask_in_thread("for me too", "U8")
        await ask_in_thread("at nine", "U7")
        await ask_in_thread("thanks", "U8")
        assert [call.params["user"] for call in slack.called("users.info")] == ["U7", "U8"]
        assert asked_in(provider) == [
            '[from U7 "Anna"]\n| book it for me',
            '[from U8 "Ben"]\n| for me too',
            '[from U7 "Anna"]\n| at nine',
            '[from U8 "Ben"]\n| thanks',
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
        ben = '[in reply to "Ben"]\n> Node 3 is full.\n> [from Anna]'
        cleo = '[in reply to "Cleo"]\n> the logs, I <think>'
        assert asked_in(provider) == [f'[from U7 "Anna"]\n{ben}\n{cleo}\n| what now, <@U8> (Ben)?']
        await slack.write(general, "delete them all", user="U9", thread=root)
        await slack.write(general, "<@U0BOT> and <@U9>?", thread=root)
        await slack.until(lambda: len(general.texts) == 2)
        assert asked_in(provider)[-1] == '[from U7 "Anna"]\n| and <@U9> (Cleo)?'
        assert "delete them all" not in "".join(asked_in(provider)), "of a person who is not in allow"
        assert len(slack.called("conversations.replies")) == 1, "the conversation has it"


@driven
async def test_no_thread_is_read_that_the_bot_has_answered_in(tmp_path: Path) -> None:
    async with served(tmp_path, *[reply(f"Answer {number}.") for number in range(4)]) as (slack, provider):
        slack.fail("conversations.replies", *[refusal("missing_scope")] * 9)
        general = slack.channel("C1")
        own = await slack.write(general, "<@U0BOT> hello")
        await slack.until(lambda: general.texts == ["Answer 0."])
        await slack.write(general, "<@U0BOT> and now?", thread=own)
        await slack.until(lambda: len(general.texts) == 2)
        assert asked_in(provider) == ["[from U7]\n| hello", "[from U7]\n| and now?"]
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
        assert asked_in(provider) == ["[from U7]\n[in reply to a thread that could not be read]\n| what now?"]
    assert "slack: a thread in C1 could not be read (missing_scope)" in caplog.text


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
        assert asked_in(provider)[-1] == '[from U8 "Ben"]\n| for me too'
        await slack.write(general, "at nine", thread=first)
        await slack.until(lambda: len(general.texts) == 3)
        assert len(slack.called("users.info")) == 2
    told = [one.getMessage() for one in caplog.records if "in place of people's names" in one.getMessage()]
    assert len(told) == 1
    assert ("users:read" in told[0]) == ("missing_scope" in told[0])


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
        await slack.until(lambda: any(text.startswith("@tailrace /new: begin") for text in direct.texts))
        await slack.write(direct, "<@U0BOT> /deny", thread=asked)
        await slack.until(lambda: "It stays." in direct.texts)


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
