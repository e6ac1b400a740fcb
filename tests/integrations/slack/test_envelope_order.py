"""Which envelopes wait for each other, and which do not."""

from __future__ import annotations

import asyncio
from functools import partial

from proof.platforms.slack import FakeSlack

from integrations.slack.slack_app import listening
from tailrace.delivery.port import ButtonPressed, MessageReceived, Place, Sender, Update
from tailrace.integrations.slack.envelope_order import LATE_S, OrderedTasks, order_keys
from tailrace.testing.clock import driven
from tailrace.testing.platforms.loopback import Changing, silence


def message(chat: str, thread: str, user: str, text: str = "hello") -> MessageReceived:
    return MessageReceived("u", Place("slack", chat, thread, "group"), Sender(user), text)


def pressed(thread: str) -> ButtonPressed:
    return ButtonPressed("u", Place("slack", "C1", thread, "group"), Sender("U7"), "a:once")


async def nothing() -> None:
    pass


async def test_a_task_waits_for_all_with_a_key_in_common_and_for_no_other() -> None:
    done, seen = list[str](), Changing()
    gates = {name: asyncio.Event() for name in ("first", "other")}

    async def work(name: str) -> None:
        if name in gates:
            await gates[name].wait()
        done.append(name)
        seen.changed()

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        tasks = OrderedTasks(group)
        for name, keys in {"first": "ab", "other": "c", "second": "b", "both": "ac", "free": "d", "none": ""}.items():
            tasks.start(keys, partial(work, name), then=nothing)
        await seen.until(lambda: len(done) == 2)
        assert done == ["free", "none"]
        gates["first"].set()
        await seen.until(lambda: len(done) == 4)
        assert done[2:] == ["first", "second"]
        gates["other"].set()
    assert done[4:] == ["other", "both"]
    assert len(tasks) == 0


def test_one_thread_and_one_person_in_a_channel_keep_their_order() -> None:
    def waits(later: Update) -> bool:
        return not set(order_keys(message("C1", "1.1", "U7"))).isdisjoint(order_keys(later))

    assert waits(message("C1", "1.1", "U8"))
    assert waits(message("C1", "", "U7", "/stop"))
    assert waits(pressed("1.1"))
    assert not waits(pressed("2.2"))
    assert not waits(message("C1", "2.2", "U8"))
    assert not waits(message("C2", "2.2", "U7"))
    assert order_keys(None) == ()


@driven
async def test_a_task_that_has_not_ended_for_long_says_so_once() -> None:
    said = list[str]()

    async def say(word: str) -> None:
        said.append(word)

    async def work(seconds: float) -> None:
        await asyncio.sleep(seconds)

    async with asyncio.TaskGroup() as group:
        tasks = OrderedTasks(group)
        tasks.start("a", partial(work, LATE_S + 1), then=nothing)
        tasks.start("b", partial(work, LATE_S - 1), then=nothing)
        for keys in ("a", "b", "c"):
            late = partial(say, f"late {keys}")
            tasks.start(keys, partial(say, f"begun {keys}"), then=nothing, when_late=late)
        tasks.start("d", partial(work, LATE_S + 2), then=nothing, when_late=partial(say, "late d"))
    assert said == ["begun c", "begun b", "late a", "late d", "begun a"]


@driven
async def test_a_stop_that_waits_for_the_persons_own_thread_is_confirmed_soon_and_comes_after_it() -> None:
    async with FakeSlack() as slack, listening(slack) as (_, inbox):
        general = slack.channel("C1")
        above = await slack.write(general, "down again", user="U8")
        slack.fail("conversations.replies", silence())
        await slack.write(general, "<@U0BOT> why?", user="U9", thread=above)
        await slack.command(general, "/tailrace", "stop", user="U9")
        began = asyncio.get_running_loop().time()
        await slack.until(lambda: len(slack.acknowledged) == 2)
        assert asyncio.get_running_loop().time() - began < 3
        *_, last = await inbox.wait_for(4)  # a mention comes twice
        assert isinstance(last, MessageReceived)
        assert last.text == "/stop"
        await slack.until(lambda: len(slack.acknowledged) == 4)
