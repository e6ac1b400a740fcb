"""The whole way: somebody writes in a chat, a run answers, the answer grows there, whatever breaks on the way."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest
from msgspec.structs import replace
from proof.memory_platform import MemoryPlatform

from delivery.planning.played_plans import EDITING
from gateway.fake_gateways import LONG, SLOW, asked_of_model, town
from tailrace.delivery.port import Capabilities, HookRequest, Inbox, Window
from tailrace.delivery.text.split import CURSOR
from tailrace.errors import CursorAhead, JournalError, PlatformError, StorageFailed
from tailrace.gateway.base import BasePlatform
from tailrace.gateway.chat_settings import Pairing
from tailrace.ports import Batch
from tailrace.testing.clock import driven
from tailrace.testing.provider import reply


@driven
async def test_an_answer_grows_in_the_chat_where_it_was_asked_for(tmp_path: Path) -> None:
    async with town(tmp_path, SLOW) as here:
        await here.write("Count.")
        await asyncio.sleep(60)
        assert here.chat.texts == (LONG,)
        growing = [texts[0] for _, texts in here.chat.screens if texts]
        assert len(growing) > 5
        assert growing[0].endswith(CURSOR)
        assert here.chat.overruns == []
        assert asked_of_model(here) == [{"role": "user", "content": "Count."}]


@driven
async def test_streaming_off_is_one_message_after_typing(tmp_path: Path) -> None:
    async with town(tmp_path, SLOW, streaming=False) as here:
        await here.write("Count.")
        await asyncio.sleep(60)
        assert here.chat.texts == (LONG,)
        assert [texts for _, texts in here.chat.screens if texts] == [(LONG,)]
        assert len(here.chat.typing_at) > 1


@pytest.mark.parametrize(("capabilities", "streams"), [(EDITING, True), (Capabilities(), False)])
@driven
async def test_a_platform_streams_by_what_it_can_do_not_by_its_name(
    tmp_path: Path, capabilities: Capabilities, streams: bool
) -> None:
    platform = MemoryPlatform(capabilities, name="whatsapp")
    async with town(tmp_path, SLOW, platform=platform, more="}\n  whatsapp: {allow: ['*']") as here:
        await here.write("Count.")
        await asyncio.sleep(60)
        assert here.chat.texts == (LONG,)
        assert (len([texts for _, texts in here.chat.screens if texts]) > 5) == streams


@driven
async def test_G88_the_same_update_twice_is_handled_once(tmp_path: Path) -> None:
    async with town(tmp_path, reply("Once.")) as here:
        await here.write("Hello.", update_id="77")
        await here.write("Hello.", update_id="77")
        await asyncio.sleep(30)
        assert here.chat.texts == ("Once.",)
        assert len(await here.runs()) == 1


async def test_G88_and_after_a_restart_too(tmp_path: Path) -> None:
    platform = MemoryPlatform(EDITING)
    for _ in range(2):
        async with town(tmp_path, reply("Once."), store="sqlite:///t.db", platform=platform) as here:
            await here.write("Hello.", update_id="77")
            for run_id in await here.runs():
                await here.app.agents.finished(run_id)
            assert len(await here.runs()) == 1
    assert platform.chat("42").texts == ("Once.",)


@driven
async def test_G89_a_paste_that_the_client_split_is_one_message(tmp_path: Path) -> None:
    async with town(tmp_path, reply("Read."), reply("And this."), reply("Also.")) as here:
        await here.write("a" * 4096, at_limit=True)
        await asyncio.sleep(1)
        await here.write("b" * 4096, at_limit=True)
        await asyncio.sleep(1)
        await here.write("the end")
        await asyncio.sleep(10)
        assert asked_of_model(here)[-1]["content"] == f"{'a' * 4096}\n{'b' * 4096}\nthe end"
        await here.write("c" * 4096, at_limit=True)
        await asyncio.sleep(10)
        assert asked_of_model(here)[-1]["content"] == "c" * 4096
        assert len(await here.runs()) == 2


@driven
async def test_only_allowed_users_are_served_and_a_new_one_can_be_let_in(tmp_path: Path) -> None:
    async with town(tmp_path, reply("Welcome.")) as here:
        await here.write("Hello?", user="99")
        await here.write("Hello??", user="99")
        await asyncio.sleep(10)
        assert await here.runs() == []
        [shown] = here.chat.texts
        code = shown.rstrip("`").rpartition(" ")[2]
        await Pairing(here.app.journal).accept(code)
        await here.write("Hello!", user="99")
        await asyncio.sleep(30)
        assert here.chat.texts[1:] == ("Welcome.",)


@driven
async def test_in_a_group_a_stranger_is_not_heard_and_nobody_else_unless_addressed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with town(tmp_path, reply("Yes?")) as here:
        await here.write("Hello?", user="99", kind="group")
        await here.write("Hello??", user="99", kind="group")
        await here.write("not for you", user="98", kind="group", addressed=False)
        told = [record.getMessage() for record in caplog.records if "not served" in record.getMessage()]
        assert told == ["telegram:99 is not served: not in platforms.telegram.allow"]
        await here.write("just talking", kind="group", addressed=False)
        await asyncio.sleep(10)
        assert here.chat.messages == []
        await here.write("you there?", kind="group", addressed=True)
        await asyncio.sleep(30)
        assert here.chat.texts == ("Yes?",)


@driven
async def test_respond_all_answers_everything(tmp_path: Path) -> None:
    async with town(tmp_path, reply("Indeed."), more=", respond: all") as here:
        await here.write("just talking", kind="group", addressed=False)
        await asyncio.sleep(30)
        assert here.chat.texts == ("Indeed.",)


@driven
async def test_a_new_message_interrupts_and_what_was_said_stays(tmp_path: Path) -> None:
    async with town(tmp_path, SLOW, reply("The second.")) as here:
        await here.write("Count.")
        await asyncio.sleep(6)
        await here.write("Stop counting.")
        await asyncio.sleep(60)
        first, second = here.chat.texts
        said, mark = first.split("\n\n")
        assert LONG.startswith(said)
        assert 0 < len(said) < len(LONG)
        assert (mark, second) == ("⏹ Interrupted by a newer message.", "The second.")


@driven
async def test_busy_queue_answers_one_after_the_other(tmp_path: Path) -> None:
    async with town(tmp_path, SLOW, reply("The second."), more=", busy: queue") as here:
        await here.write("Count.")
        await asyncio.sleep(2)
        await here.write("And then?")
        await asyncio.sleep(100)
        assert here.chat.texts == (LONG, "The second.")


TAKEN_UP = "↪ Your message is taken up."


@driven
async def test_N164_busy_steer_gives_the_message_to_the_answer_under_way(tmp_path: Path) -> None:
    async with town(tmp_path, SLOW, reply("Backwards: 2, 1."), more=", busy: steer") as here:
        await here.write("Count.")
        await asyncio.sleep(2)
        await here.write("And backwards.", update_id="77")
        await here.write("And backwards.", update_id="77")
        await asyncio.sleep(100)
        assert here.chat.texts == (LONG, TAKEN_UP, "Backwards: 2, 1.")
        assert here.said == ["Count.", LONG, "And backwards."]
        assert len(await here.runs()) == 1


@driven
async def test_the_command_counts_for_one_message_whatever_the_default(tmp_path: Path) -> None:
    script = (SLOW, reply("Backwards."), reply("Queued."))
    async with town(tmp_path, *script) as here:
        await here.write("Count.")
        await asyncio.sleep(2)
        await here.write("/steer And backwards.")
        await here.write("/queue And then?")
        await here.write("/queue")
        await asyncio.sleep(100)
        assert here.chat.texts == (LONG, "/queue <message>", TAKEN_UP, "Backwards.", "Queued.")
        assert here.said[-1] == "And then?"


@driven
async def test_N165_a_message_that_the_stopped_answer_never_read_is_said(tmp_path: Path) -> None:
    async with town(tmp_path, SLOW, more=", busy: steer") as here:
        await here.write("Count.")
        await asyncio.sleep(2)
        await here.write("And backwards.")
        await asyncio.sleep(2)
        await here.write("/stop")
        await asyncio.sleep(20)
        assert "The answer ended before it took your message up" in "\n".join(here.chat.texts)


@driven
async def test_a_message_of_another_person_waits_for_the_answer(tmp_path: Path) -> None:
    async with town(tmp_path, SLOW, reply("For Ben."), more=", busy: steer", allow="'*'") as here:
        await here.write("Count.", kind="group", user="1")
        await asyncio.sleep(2)
        await here.write("And me?", kind="group", user="2")
        await asyncio.sleep(100)
        assert here.chat.texts == (LONG, "For Ben.")
        assert len(await here.runs()) == 2


@driven
async def test_the_answer_to_a_later_question_stands_below_all_of_the_earlier_one(tmp_path: Path) -> None:
    slow_chat = replace(EDITING, limit=100, windows=(Window(1, 5.0),))
    script = reply(LONG), reply("The second.")
    async with town(tmp_path, *script, capabilities=slow_chat, more=", busy: queue", streaming=False) as here:
        await here.write("One.")
        await here.write("Two.")
        await asyncio.sleep(100)
        assert here.chat.texts[-1] == "The second."
        assert " ".join(here.chat.texts[:-1]).split() == LONG.split()


@driven
async def test_threads_are_conversations_of_their_own(tmp_path: Path) -> None:
    async with town(tmp_path, SLOW, SLOW) as here:
        await here.write("one", thread="7", kind="group")
        await here.write("two", thread="8", kind="group")
        await asyncio.sleep(120)
        assert sorted((message.thread, message.text) for message in here.chat.visible) == [("7", LONG), ("8", LONG)]
        assert [len(asked_of_model(here, number)) for number in (0, 1)] == [1, 1]


# ── platforms that break ─────────────────────────────────────────────────────────────────────────────────────


class Broken(BasePlatform):
    name = "matrix"

    def __init__(self, *, permanent: bool) -> None:
        self.tries: list[float] = []
        self._permanent = permanent

    async def run(self, inbox: Inbox) -> None:
        self.tries.append(asyncio.get_running_loop().time())
        if self._permanent:
            raise PlatformError("the token is wrong", platform=self.name, permanent=True)
        raise ValueError("a bug in the adapter")


@driven
async def test_one_broken_platform_never_stops_the_others(tmp_path: Path) -> None:
    bug, token = Broken(permanent=False), Broken(permanent=True)
    async with town(tmp_path, reply("Here."), others=[bug, token]) as here:
        await asyncio.sleep(120)
        pauses = [later - earlier for earlier, later in itertools.pairwise(bug.tries)]
        assert 4 < len(pauses) < 10
        assert pauses[:5] == sorted(pauses[:5]), "with back-off"
        assert len(token.tries) <= 3
        assert here.app.degraded["matrix"] in ("the token is wrong", "ValueError: a bug in the adapter")
        down: dict[str, bool] = {}
        here.app.platforms_down.watch(down.__setitem__)
        assert down == {"matrix": True}, "and not the one that is connected"
        await here.write("Still there?")
        await asyncio.sleep(20)
        assert here.chat.texts == ("Here.",)


@driven
async def test_a_delivery_that_the_journal_failed_is_made_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with town(tmp_path, reply("Here.")) as here:
        read, failures = here.app.journal.read, [JournalError("busy"), StorageFailed("full"), CursorAhead("late")]

        async def fail_thrice(run_id: str, *, after: int = 0) -> Batch:
            if failures and (await here.app.journal.get(run_id)).new.kind == "agent":
                raise failures.pop()
            return await read(run_id, after=after)

        monkeypatch.setattr(here.app.journal, "read", fail_thrice)
        await here.write("Are you there?")
        await asyncio.sleep(120)
        assert (here.chat.texts, failures) == (("Here.",), [])


@driven
async def test_a_connection_that_was_cut_is_made_again(tmp_path: Path) -> None:
    async with town(tmp_path, SLOW) as here:
        await here.write("Count.")
        await asyncio.sleep(5)
        here.platform.cut_connection()
        await asyncio.sleep(60)
        assert here.platform.starts == 2
        assert here.chat.texts == (LONG,), "what was under way went on"


@driven
async def test_a_webhook_that_nobody_wants_is_not_found(tmp_path: Path) -> None:
    async with town(tmp_path) as here:
        answer = await here.gateway.hook(HookRequest("POST", "/platforms/x", {}, {}, b""))
        assert answer.status == 404
        assert here.gateway.hook_paths == []
