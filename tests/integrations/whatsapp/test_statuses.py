"""What WhatsApp tells of messages, and waiting for it."""

from __future__ import annotations

import asyncio

from tailrace.delivery.port import Refused, Sent
from tailrace.integrations.whatsapp.statuses import MessagesTold
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
