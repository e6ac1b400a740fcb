"""An answer growing in Slack: consumer, planner, adapter, client library and fake together, on a driven clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import msgspec
import pytest
from proof.platforms.slack import FakeSlack, refusal
from proof.platforms.slack_channels import SlackChannel, SlackState

from tailrace.delivery.port import Place
from tailrace.events import MessageStop, ToolCallChunk, ToolCallFinished
from tailrace.integrations.slack.adapter import SlackPlatform
from tailrace.integrations.slack.workspace_limits import LONGEST_PAUSE_S, MAX_STREAMS
from tailrace.testing.clock import driven
from tailrace.testing.platforms.loopback import silence
from tailrace.testing.platforms.played_runs import Timed, chunks, play, show

TEXT = " ".join(f"word{number}" for number in range(200))


@asynccontextmanager
async def question(slack: FakeSlack) -> AsyncIterator[tuple[SlackPlatform, SlackChannel, Place]]:
    """Somebody has asked in a channel; the answer belongs under it."""
    general = slack.channel("C1")
    ts = await slack.write(general, "hello")
    platform = SlackPlatform(slack.token, slack.app_token, base_url=slack.api_url, answer_s=5.0)
    try:
        yield platform, general, Place("slack", "C1", ts, "group", {"user": "U7", "team": "T0TEAM"})
    finally:
        await platform.close()


def grows(states: list[SlackState]) -> bool:
    """Every state goes on from the one before it."""
    return all(later.text.startswith(earlier.text.rstrip()) for earlier, later in pairwise(states))


@driven
async def test_a_native_stream_grows_under_the_question_and_is_closed() -> None:
    async with FakeSlack() as slack, question(slack) as (platform, general, place):
        await show(platform, place, TEXT, pace_s=0.3)
        [message] = general.answers
        assert (message.text, message.thread_ts, message.state.streaming) == (TEXT, place.thread, False)
        assert len(message.states) > 10
        assert grows(message.states)
        assert not any("▌" in state.text for state in message.states)
        assert not slack.called("chat.update")
        assert all(call.status == 200 for call in slack.calls)


@driven
async def test_tools_are_cards_of_the_stream() -> None:
    async with FakeSlack() as slack, question(slack) as (platform, general, place):
        before, after = "I will look at the files in that directory first. " * 3, "There are three of them. " * 20
        events = chunks(before, pace_s=0.3)
        events += [Timed(0.1, MessageStop()), Timed(0.1, ToolCallChunk("terminal", "ls -l", index=0))]
        events += [Timed(5.0, ToolCallFinished("terminal", 5.0, ok=True, index=0))]
        await play(platform, place, [*events, *chunks(after, pace_s=0.3)], after)
        cards = [card for message in general.answers for state in message.states for card in state.cards]
        assert [card[1:] for card in dict.fromkeys(cards)] == [
            ("terminal ls -l", "in_progress"),
            ("terminal ls -l", "complete"),
        ]
        said = [text.strip() for text in general.texts if text.strip()]
        assert said == [before.strip(), after.strip()]
        assert not any(message.state.streaming for message in general.answers)


@driven
async def test_a_stream_that_takes_a_piece_not_is_closed_and_completed_by_an_edit() -> None:
    async with FakeSlack() as slack, question(slack) as (platform, general, place):
        slack.fail("chat.appendStream", refusal("invalid_chunks"))
        await show(platform, place, TEXT)
        assert general.texts == [TEXT]
        assert not general.answers[0].state.streaming


@driven
async def test_a_stream_that_cannot_be_closed_is_edited_once_slack_has_ended_it() -> None:
    async with FakeSlack() as slack, question(slack) as (platform, general, place):
        slack.fail("chat.stopStream", *[refusal("restricted_action")] * 5)
        await show(platform, place, TEXT)
        assert general.texts == [TEXT]
        assert not general.answers[0].state.streaming


@driven
async def test_where_streams_are_not_to_be_had_edits_take_their_place_within_their_own_limit() -> None:
    async with FakeSlack() as slack, question(slack) as (platform, general, place):
        slack.fail("chat.startStream", *[refusal("missing_scope")] * 50)
        await show(platform, place, TEXT, pace_s=1.0)
        [message] = general.answers
        assert message.text == TEXT
        assert len(message.states) > 5
        assert len(slack.called("chat.startStream")) == 1
        assert all(call.status == 200 for call in slack.calls)


@driven
async def test_in_the_channel_itself_one_message_is_edited() -> None:
    async with FakeSlack() as slack, question(slack) as (platform, general, place):
        await show(platform, msgspec.structs.replace(place, thread=""), TEXT, pace_s=0.3)
        [message] = general.answers
        assert (message.text, message.thread_ts) == (TEXT, "")
        assert len(slack.called("chat.update")) > 5


@driven
async def test_G80_a_final_send_without_a_reply_is_looked_up() -> None:
    async with FakeSlack() as slack, question(slack) as (platform, general, place):
        slack.fail("chat.postMessage", silence())
        scene = await show(platform, place, TEXT, streaming=False)
        assert general.texts == [TEXT]
        assert (await scene.facts())[-1].state == "confirmed"
        assert len(slack.called("chat.postMessage")) == 1


@driven
async def test_G85_a_thread_deleted_under_way_moves_the_answer_to_the_channel() -> None:
    async with FakeSlack() as slack, question(slack) as (platform, general, place):
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(show(platform, place, TEXT, pace_s=0.5))
            await slack.until(lambda: general.answers and len(general.answers[0].states) == 4)
            slack.delete_thread(general, place.thread)
        assert {message.thread_ts for message in general.answers} == {""}
        assert general.texts.count(TEXT) == 1
        assert any("thread is gone" in text for text in general.texts)


@driven
async def test_G90_a_stream_is_rolled_over_before_slack_ends_it() -> None:
    async with FakeSlack() as slack, question(slack) as (platform, general, place):
        await show(platform, place, TEXT, pace_s=5.0)  # more than six minutes
        assert len(general.answers) == 2
        assert "".join(general.texts).split() == TEXT.split()
        assert not slack.called("chat.update")
        assert not any(message.state.streaming for message in general.answers)


@driven
async def test_G90_a_stream_that_slack_ends_early_is_completed_by_an_edit() -> None:
    async with FakeSlack() as slack, question(slack) as (platform, general, place):
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(show(platform, place, TEXT, pace_s=0.5))
            await slack.until(lambda: general.answers and len(general.answers[0].states) == 5)
            slack.expire_stream(general.answers[0])
        assert general.texts == [TEXT]
        assert slack.called("chat.update")


async def answer_in(slack: FakeSlack, platform: SlackPlatform, channel: SlackChannel, text: str, pace_s: float) -> None:
    ts = await slack.write(channel, "hello")
    place = Place("slack", channel.id, ts, "group", {"user": "U7", "team": "T0TEAM"})
    await show(platform, place, text, pace_s=pace_s)


def gaps_of(states: list[SlackState]) -> list[float]:
    return [later.at - earlier.at for earlier, later in pairwise(states)]


@pytest.mark.parametrize(("streams", "longest_gap_s"), [(3, 3.0), (15, 30.0)])
@driven
async def test_G81_answers_at_a_time_share_the_workspaces_pieces_and_none_stands_still(
    streams: int, longest_gap_s: float
) -> None:
    text = " ".join(f"word{number}" for number in range(600))
    async with FakeSlack() as slack, question(slack) as (platform, _, _):
        channels = [slack.channel(f"C2{number}") for number in range(streams)]
        started_at = slack.now()
        await asyncio.gather(*(answer_in(slack, platform, channel, text, 0.3) for channel in channels))
        assert slack.now() - started_at < 600 * 0.3 + 2 * LONGEST_PAUSE_S, "and ends soon after the model has"
        assert [channel.texts for channel in channels] == [[text]] * streams
        assert not [call for call in slack.calls if call.status == 429]
        for channel in channels:
            assert max(gaps_of(channel.answers[0].states)) <= longest_gap_s


@driven
async def test_more_answers_than_slack_opens_streams_for_come_whole() -> None:
    async with FakeSlack() as slack, question(slack) as (platform, _, _):
        channels = [slack.channel(f"C2{number}") for number in range(MAX_STREAMS + 4)]
        await asyncio.gather(*(answer_in(slack, platform, channel, TEXT, 0.1) for channel in channels))
        assert [channel.texts for channel in channels] == [[TEXT]] * len(channels)
        assert not [call for call in slack.calls if call.status == 429]
        assert len(slack.called("chat.startStream")) == MAX_STREAMS
        assert not slack.called("chat.update")
        assert sorted(len(channel.answers[0].states) for channel in channels)[:4] == [1] * 4
