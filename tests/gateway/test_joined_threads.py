"""A thread of a room in which the bot has answered: nobody has to name it there again, where the platform says so."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from delivery.planning.played_plans import EDITING
from gateway.fake_gateways import town
from tailrace.testing.clock import driven
from tailrace.testing.provider import reply


@pytest.mark.parametrize("joins_threads", [True, False])
@driven
async def test_what_is_written_in_a_thread_that_it_has_answered_in_is_for_the_bot(
    tmp_path: Path, joins_threads: bool
) -> None:
    platform = replace(EDITING, joins_threads=joins_threads)
    script = reply("One answer, and"), reply("another answer.")
    async with town(tmp_path, *script, capabilities=platform) as here:
        await here.write("before", kind="group", thread="t", addressed=False)
        await here.write("you there?", kind="group", thread="t")
        await asyncio.sleep(5)
        await here.write("and then?", kind="group", thread="t", addressed=False)
        await here.write("Ben, and you?", kind="group", thread="t", addressed=False, to_others=True)
        await here.write("somewhere else", kind="group", thread="other", addressed=False)
        await here.write("in the room", kind="group", addressed=False)
        await asyncio.sleep(5)
        said = [message.text for message in here.chat.visible]
        assert said == ["One answer, and", "another answer."][: 2 if joins_threads else 1]
        assert "before" not in str(here.said)
