"""What runs for a person who is let out ends."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from pathlib import Path

from proof.memory_platform import MemoryPlatform

from delivery.planning.played_plans import EDITING
from gateway.fake_gateways import Town, town
from tailrace.cli.commands import gateway
from tailrace.config.load import load
from tailrace.delivery.port import AnyAction, AnyReply, Place
from tailrace.gateway.chat_settings import Pairing

STORE = "sqlite:///t.db"
ENDLESS = "long+stall@30%"  # it stands still until its client leaves


class WatchedChat(MemoryPlatform):
    """Says when the chat shows something else."""

    def __init__(self) -> None:
        super().__init__(EDITING)
        self.changed = asyncio.Event()

    async def perform(self, place: Place, action: AnyAction) -> AnyReply:
        reply = await super().perform(place, action)
        self.changed.set()
        return reply

    async def until_shown(self, text: str) -> None:
        while not any(text in one for one in self.chat("42").texts):
            self.changed.clear()
            await self.changed.wait()


async def shown(here: Town, text: str) -> None:
    """Returns when the chat shows the text."""
    assert isinstance(here.platform, WatchedChat)
    await asyncio.wait_for(here.platform.until_shown(text), 60)


def code_in(here: Town) -> str:
    return here.chat.texts[0].rstrip("`").rpartition(" ")[2]


def told(home: Path, **args: str) -> None:
    """As the command does in a process of its own."""
    given = Namespace(**{"pair": None, "paired": False, "unpair": None, **args})
    assert gateway.run(given, load({}, home)) == 0


async def test_what_runs_for_a_person_who_is_let_out_is_stopped_and_told_so(tmp_path: Path) -> None:
    async with town(tmp_path, ENDLESS, ENDLESS, store=STORE, platform=WatchedChat()) as here:
        await here.write("Hello?", user="99")
        await shown(here, "--pair")
        await Pairing(here.app.journal).accept(code_in(here))
        await here.write("Count.", user="99")
        await here.write("Count too.", user="1", thread="7", kind="group")
        await shown(here, "word5")
        await asyncio.to_thread(told, tmp_path, unpair="telegram:99")
        others, theirs = await here.runs()
        assert (await asyncio.wait_for(here.app.agents.finished(theirs), 60)).status == "stopped"
        await shown(here, "⏹ Stopped from elsewhere.")
        assert (await here.app.journal.get(others)).state == "running"
