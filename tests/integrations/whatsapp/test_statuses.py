"""What WhatsApp tells of messages, and waiting for it."""

from __future__ import annotations

import asyncio

from tailrace.delivery.port import Refused, Sent
from tailrace.integrations.whatsapp.statuses import SAMPLE, MessagesTold
from tailrace.testing.clock import driven


@driven
async def test_a_message_is_known_once_it_was_told_of_and_waited_for_until_then() -> None:
    told = MessagesTold()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(told.outcome_of("k", within_s=10.0))
        await asyncio.sleep(9)
        told.add([("another", Sent("1")), ("k", Sent("2"))])
        assert await waiting == Sent("2")
    began = asyncio.get_running_loop().time()
    assert await told.outcome_of("another", within_s=10.0) == Sent("1")
    assert asyncio.get_running_loop().time() == began
    assert await told.outcome_of("never", within_s=10.0) is None
    assert asyncio.get_running_loop().time() >= began + 10.0


@driven
async def test_the_oldest_are_forgotten_first() -> None:
    told = MessagesTold(limit=2)
    told.add((str(number), Sent(f"id-{number}")) for number in range(3))
    assert [await told.outcome_of(str(number), within_s=0.0) for number in range(3)] == [
        None,
        Sent("id-1"),
        Sent("id-2"),
    ]


@driven
async def test_a_failure_is_the_last_word_in_whatever_order_the_calls_come() -> None:
    taken, failed = ("k", Sent("1")), ("k", Refused("why"))
    for order in ((taken, failed), (failed, taken)):
        told = MessagesTold()
        told.add(order)
        assert await told.outcome_of("k", within_s=0.0) == Refused("why")


def test_statuses_reach_a_process_that_hears_of_each_of_the_newest_messages() -> None:
    told = MessagesTold()
    states = [told.reach_us(told.so_far())]
    for key in ("1", "2"):
        told.sent(key)
        states.append(told.reach_us(told.so_far()))
        told.add([(key, Sent(f"id-{key}"))])
        states.append(told.reach_us(told.so_far()))
    assert states == [False, False, False, False, True], "one alone may be chance"
    told.sent("told to another process")
    states = [told.reach_us(told.so_far())]
    for number in range(SAMPLE):
        told.sent(f"later-{number}")
        told.add([(f"later-{number}", Sent("id"))])
    assert [*states, told.reach_us(told.so_far())] == [False, True]


def test_a_message_sent_since_then_may_have_no_status_yet() -> None:
    told = MessagesTold()
    for key in ("1", "2"):
        told.sent(key)
    then = told.so_far()
    told.sent("just now")
    assert not told.reach_us(then)
    told.add([("1", Sent("id-1")), ("2", Refused("it could not be delivered"))])
    assert (told.reach_us(then), told.reach_us(told.so_far())) == (True, False)


def test_one_message_is_enough_where_a_status_has_come_since_then() -> None:
    told = MessagesTold()
    told.sent("1")
    told.add([("1", Sent("id-1"))])
    then = told.so_far()
    states = [told.reach_us(then)]
    told.add([("1", Sent("id-1"))])  # it was read
    assert [*states, told.reach_us(then)] == [False, True]
