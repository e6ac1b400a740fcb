"""The whole way: somebody writes in a chat, a run answers, the answer grows where it was asked for."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from pathlib import Path
from typing import cast

import pytest
from msgspec.structs import replace

from delivery.planning.played_plans import EDITING
from platforms.runtime.fake_gateways import DANGEROUS, asked_of_model, town
from tailrace.agent.session import TURN_KIND
from tailrace.delivery.port import (
    Attachment,
    Capabilities,
    Failed,
    HookRequest,
    Inbox,
    Place,
    Sender,
    StopPressed,
    Window,
)
from tailrace.delivery.text.split import CURSOR
from tailrace.errors import CursorAhead, JournalError, PlatformError, StorageFailed
from tailrace.journal.fold import DELIVERY
from tailrace.platforms.runtime.base import BasePlatform
from tailrace.platforms.runtime.chat_settings import Pairing
from tailrace.ports import Batch
from tailrace.runs.recovery import finished as delivered
from tailrace.testing.clock import driven
from tailrace.testing.platforms.base import MemoryPlatform
from tailrace.testing.provider import Scenario, call, reply

LONG = " ".join(f"word{number}" for number in range(60))
SLOW = Scenario(reply=reply(LONG), pace_s=0.2)
ANEW = "A new conversation begins. /back returns to the one before."
ANEW_STOPPED = f"{ANEW} The answer under way was stopped."


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
        assert here.chat.texts[1:] == ("You are let in. Ask me anything; /help shows what I can do.", "Welcome.")


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


@driven
async def test_status_says_what_runs_and_how_many_wait(tmp_path: Path) -> None:
    async with town(tmp_path, SLOW, SLOW, SLOW, more=", busy: queue") as here:
        await here.write("Count.")
        await asyncio.sleep(2)
        [first] = await here.app.journal.runs(kind=TURN_KIND)
        await here.write("And then?")
        await here.write("And then?")
        await here.write("/status")
        await asyncio.sleep(2)
        assert here.chat.texts[-1].endswith(f"- running: {first.id}\n- waiting: 2")


@driven
@pytest.mark.parametrize(
    ("command", "waiting", "told"),
    [
        ("/stop", 1, "⏹ Stopped. The question that waited is not answered either."),
        ("/stop", 2, "⏹ Stopped. The 2 questions that waited are not answered either."),
        ("/new", 1, f"{ANEW_STOPPED} The question that waited is not answered either."),
    ],
)
async def test_questions_that_are_dropped_with_the_one_that_ran_are_told(
    tmp_path: Path, command: str, waiting: int, told: str
) -> None:
    async with town(tmp_path, SLOW, SLOW, SLOW, more=", busy: queue") as here:
        await here.write("Count.")
        await asyncio.sleep(2)
        for _ in range(waiting):
            await here.write("And then?")
        await here.write(command)
        await asyncio.sleep(5)
        assert here.chat.texts[-1] == told


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


# ── commands ─────────────────────────────────────────────────────────────────────────────────────────────────


@driven
async def test_stop_stops_and_says_so(tmp_path: Path) -> None:
    async with town(tmp_path, SLOW) as here:
        await here.write("Count.")
        await asyncio.sleep(6)
        await here.write("/stop@our_bot", kind="private")
        await asyncio.sleep(20)
        assert [text for text in here.chat.texts if text in LONG] != []
        assert "⏹ Stopped." in here.chat.texts
        assert not any(CURSOR in text for text in here.chat.texts)
        await here.write("/stop")
        await asyncio.sleep(5)
        assert here.chat.texts[-1] == "Nothing is running."


@pytest.mark.parametrize(("command", "told"), [("/stop", "⏹ Stopped."), ("/new", ANEW_STOPPED)])
@driven
async def test_what_there_is_of_an_answer_stands_above_the_word_that_it_was_stopped(
    tmp_path: Path, command: str, told: str
) -> None:
    """Where nothing is shown before it is whole, too."""
    async with town(tmp_path, SLOW, capabilities=Capabilities(windows=(Window(1, 3.0),))) as here:
        await here.write("Count.")
        await asyncio.sleep(6)
        await here.write(command)
        await asyncio.sleep(30)
        partial, last = here.chat.texts
        assert LONG.startswith(partial)
        assert last == told


@driven
async def test_a_stop_is_confirmed_though_its_answer_cannot_be_shown(tmp_path: Path) -> None:
    async with town(tmp_path, SLOW, capabilities=Capabilities(windows=(Window(1, 3.0),))) as here:
        await here.write("Count.")
        await asyncio.sleep(6)
        here.platform.fault = lambda _, action: Failed("away") if "word" in getattr(action, "text", "") else None
        await here.write("/stop")
        await asyncio.sleep(20)
        assert here.chat.texts == ("⏹ Stopped.",)


@driven
async def test_the_platforms_own_stop_button_stops_too(tmp_path: Path) -> None:
    async with town(tmp_path, SLOW) as here:
        await here.write("Count.")
        await asyncio.sleep(6)
        await here.platform.receive(StopPressed("s1", Place("telegram", "42"), Sender("1")))
        await asyncio.sleep(20)
        [run] = await here.app.journal.runs(kind="agent")
        assert run.state == "stopped"


@driven
async def test_new_begins_a_conversation_that_knows_nothing_of_the_last(tmp_path: Path) -> None:
    async with town(tmp_path, reply("One."), reply("Two."), reply("Three.")) as here:
        await here.write("first")
        await asyncio.sleep(10)
        await here.write("second")
        await asyncio.sleep(10)
        assert len(asked_of_model(here)) == 3
        await here.write("/new")
        await here.write("third")
        await asyncio.sleep(10)
        assert [message["content"] for message in asked_of_model(here)] == ["third"]


@driven
async def test_new_with_a_question_begins_with_that_question(tmp_path: Path) -> None:
    async with town(tmp_path, reply("One."), reply("Two.")) as here:
        await here.write("first")
        await asyncio.sleep(10)
        await here.write("/new second")
        await asyncio.sleep(10)
        assert [message["content"] for message in asked_of_model(here)] == ["second"]
        assert here.chat.texts == ("One.", ANEW, "Two.")


@driven
async def test_the_way_back_to_the_configured_model_is_told_and_works(tmp_path: Path) -> None:
    async with town(tmp_path) as here:
        for text in (
            "/model faulty/other",
            "/model",
            "/model default",
            "/model",
            "/model tailrace",
            "/model faulty/a b",
        ):
            await here.write(text)
            await asyncio.sleep(5)
        _, shown, back, again, bare, blank = here.chat.texts
    assert shown == "The model is `faulty/other`. /model default goes back to `faulty/ok`."
    assert back == "The model is `faulty/ok` from now on."
    assert again == "The model is `faulty/ok`."
    assert bare == blank == "⚠️ A model is named so: /model <provider>/<model>. /model default is `faulty/ok`."


@driven
async def test_switches_are_shown_and_changed(tmp_path: Path) -> None:
    async with town(tmp_path) as here:
        for text in ("/model", "/model nowhere/x", "/model faulty/other", "/verbose", "/yolo", "/status", "/help"):
            await here.write(text)
            await asyncio.sleep(5)
        model, wrong, changed, verbose, yolo, status, usage = here.chat.texts
        assert model == "The model is `faulty/ok`."
        assert "no such provider" in wrong
        assert changed == "The model is `faulty/other` from now on."
        assert "in full" in verbose
        assert "without asking" in yolo
        assert "faulty/other" in status
        assert "approvals: off" in status
        assert "/approve" in usage


@driven
async def test_a_switch_that_is_told_on_or_off_is_never_reversed(tmp_path: Path) -> None:
    async with town(tmp_path) as here:
        for text in ("/yolo off", "/yolo on", "/yolo ON", "/yolo maybe", "/status", "/verbose off", "/verbose on"):
            await here.write(text)
            await asyncio.sleep(5)
        off, on, again, unclear, status, brief, full = here.chat.texts
    assert off == "Dangerous commands ask again."
    assert on == again
    assert "without asking" in on
    assert unclear == "/yolo, /yolo on or /yolo off."
    assert "approvals: off" in status
    assert brief == "Tools are no longer shown in full."
    assert "in full" in full


@driven
async def test_tools_that_the_config_shows_in_full_can_be_shown_briefly(tmp_path: Path) -> None:
    listing = reply(call("terminal", {"command": "ls"}))
    async with town(tmp_path, listing, reply("One."), listing, reply("Two."), more=", tools: verbose") as here:
        for text in ("look", "/verbose", "look again"):
            await here.write(text)
            await asyncio.sleep(10)
        full, _, said, brief, _ = here.chat.texts
    assert "command: ls" in full
    assert said == "Tools are no longer shown in full."
    assert "command: ls" not in brief


async def test_switches_are_kept_after_a_restart(tmp_path: Path) -> None:
    platform = MemoryPlatform(EDITING)
    for text in ("/model faulty/other", "/model"):
        async with town(tmp_path, store="sqlite:///t.db", platform=platform) as here:
            await here.write(text)
            here.gateway.take_no_more()
    assert platform.chat("42").texts == (
        "The model is `faulty/other` from now on.",
        "The model is `faulty/other`. /model default goes back to `faulty/ok`.",
    )


# ── attachments ──────────────────────────────────────────────────────────────────────────────────────────────


@driven
async def test_images_go_to_the_model_and_text_files_as_text(tmp_path: Path) -> None:
    async with town(tmp_path, reply("Seen.")) as here:
        here.platform.files = {"i": b"\x89PNG", "t": b"x = 1\n", "b": b"\xff\xfe\x00"}
        await here.write(
            "What is this?",
            attachments=[
                Attachment("i", "a.png", "image/png"),
                Attachment("t", "a.py", "text/x-python"),
                Attachment("b", "a.bin", "application/octet-stream"),
                Attachment("gone", "b.txt", "text/plain"),
                Attachment("t", "big.txt", "text/plain", 300_000),
                Attachment("i", "big.png", "image/png", 11 << 20),
            ],
        )
        await asyncio.sleep(20)
        said = json.dumps(asked_of_model(here)[-1]["content"])
        assert base64.b64encode(b"\x89PNG").decode() in said
        assert "x = 1" in said
        assert "only images and text files" in said
        assert "big.txt (text/plain); a text of more than 256 KiB is not read" in said
        assert "big.png (image/png); an image of more than 10 MiB is not read" in said
        assert "could not be read" in said
        assert here.chat.texts == ("Seen.",)


@driven
async def test_text_files_of_windows_are_read(tmp_path: Path) -> None:
    async with town(tmp_path, reply("Seen.")) as here:
        here.platform.files = {
            "wide": "größe".encode("utf-16"),
            "page": "größe".encode("cp1252"),
            "bin": b"\xe4\0\0\xf6",
        }
        await here.write(
            "What is this?",
            attachments=[
                Attachment("wide", "a.txt", "text/plain"),
                Attachment("page", "b.csv", "application/vnd.ms-excel"),
                Attachment("bin", "c.txt", "text/plain"),
                Attachment("page", "d", "application/octet-stream"),
            ],
        )
        await asyncio.sleep(20)
        content = cast("list[dict[str, str]]", asked_of_model(here)[-1]["content"])
        assert [part["text"].partition("]")[2].strip("`\n") for part in content[1:]] == ["größe", "größe", "", ""]


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

        async def fail_thrice(run_id: str, *, after: int = 0, limit: int | None = None) -> Batch:
            if failures and (await here.app.journal.get(run_id)).new.kind == "agent":
                raise failures.pop()
            return await read(run_id, after=after, limit=limit)

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


# ── ending ───────────────────────────────────────────────────────────────────────────────────────────────────


@driven
async def test_a_shutdown_lets_answers_come_to_their_end(tmp_path: Path) -> None:
    platform = MemoryPlatform(EDITING)
    async with town(tmp_path, SLOW, platform=platform) as here:
        await here.write("Count.")
        await asyncio.sleep(3)
    assert platform.chat("42").texts == (LONG,)


async def test_what_a_shutdown_cuts_says_so_and_goes_on_after_the_restart(tmp_path: Path) -> None:
    platform = MemoryPlatform(Capabilities(mode="edit", edits=True, windows=(Window(100, 1.0),), edit_interval_s=0.01))
    slow = Scenario(reply=reply(LONG), pace_s=0.05)
    async with town(tmp_path, slow, store="sqlite:///t.db", drain_s=0.1, platform=platform) as here:
        await here.write("Count.")
        await here.platform.first_message.wait()
    [shown] = platform.chat("42").texts
    assert "Interrupted by a restart" in shown
    async with town(tmp_path, reply("and so on."), store="sqlite:///t.db", platform=platform) as here:
        [run_id] = await here.runs()
        finished = await here.app.agents.finished(run_id)
        for delivery in await here.app.journal.runs(kind=DELIVERY):
            await delivered(here.app.journal, delivery.id)
    assert platform.chat("42").texts == (finished.output,)
    assert finished.output.startswith("word0 word1")
    assert len(platform.chat("42").messages) == 1


@driven
async def test_while_it_ends_a_button_lets_the_answer_end_that_waits_for_it(tmp_path: Path) -> None:
    async with town(tmp_path, DANGEROUS, reply("Done.")) as here:
        await here.write("Clean up.")
        await asyncio.sleep(5)
        question = next(message for message in here.chat.visible if message.buttons)
        here.gateway.take_no_more()
        await here.press(question.buttons[0].value)
        await asyncio.sleep(5)
        assert here.chat.texts[-1] == "Done."
