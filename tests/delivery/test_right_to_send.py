"""A delivery whose process may no longer send, or is about to end, goes on in another one: one message, and once."""

from __future__ import annotations

import asyncio

from delivery.test_consumer import TEXT, WORDS, Scene
from tailrace.testing.clock import driven


@driven
async def test_L170_nothing_is_sent_once_another_process_may_have_the_platform() -> None:
    scene = Scene()
    lease = await scene.start_run()
    lost = asyncio.Event()
    scene.may_send = lambda: not lost.is_set()
    first = await scene.consumer(lease.run_id)
    async with asyncio.TaskGroup() as group:
        group.create_task(scene.say(lease, WORDS))
        delivering = group.create_task(first.run())
        await asyncio.sleep(4.0)
        lost.set()
        performed = len(scene.platform.performed)
        assert await delivering is None
    assert len(scene.platform.performed) == performed
    scene.may_send = lambda: True
    await scene.end(lease)
    await (await scene.heir()).run()
    assert scene.texts == (TEXT,)
    assert len(scene.platform.chat("42").messages) == 1


@driven
async def test_L170_a_send_that_was_written_to_the_ledger_and_not_made_is_made_by_the_next() -> None:
    """The right was lost while the ledger was written."""
    scene = Scene()
    lease = await scene.start_run()
    await scene.say(lease, WORDS, every_s=0.0)
    await scene.end(lease)
    answers = iter([True, False, False])
    scene.may_send = lambda: next(answers)
    assert await (await scene.consumer(lease.run_id)).run() is None
    assert scene.platform.performed == []
    scene.may_send = lambda: True
    await (await scene.heir()).run()
    assert scene.texts == (TEXT,)


@driven
async def test_L171_a_delivery_is_left_when_its_request_was_answered() -> None:
    scene = Scene(latency_s=5.0)
    lease = await scene.start_run()
    first = await scene.consumer(lease.run_id)
    async with asyncio.TaskGroup() as group:
        group.create_task(scene.say(lease, WORDS))
        delivering = group.create_task(first.run())
        await asyncio.sleep(7.0)  # typing has taken five seconds; the first message is on its way
        sent_before = len(scene.platform.chat("42").messages)
        first.leave()
        assert await delivering is None
    assert (sent_before, len(scene.platform.chat("42").messages)) == (0, 1)
    await scene.end(lease)
    await (await scene.heir()).run()
    assert scene.texts == (TEXT,)
    assert len(scene.platform.chat("42").messages) == 1, "the next process knows what the first one sent"
