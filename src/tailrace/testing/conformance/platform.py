"""What every platform adapter must do: subclass `PlatformConformance`, give it an `open_rig` fixture, run it in pytest.

    class MyRig(PlatformRig):
        answers, write, unreachable, stranger: what the fake shows and does

    class TestMyPlatform(PlatformConformance):
        steps = ("send", "edit")

        @pytest.fixture
        def open_rig(self):
            @asynccontextmanager
            async def rig(*, listening):
                async with MyFake() as fake:
                    platform = MyPlatform(fake.token, base_url=fake.url, answer_s=5.0)
                    async with connected(platform, listening=listening) as inbox:
                        yield MyRig(platform, Place("mine", "7"), inbox, fake)
            return rig

What the capabilities say decides what is asked of an adapter. A rig that cannot do something skips the tests of it. The
suite runs on a driven clock and never sleeps; an adapter that needs the real time sets `drives_clock` to False.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import ClassVar

import pytest

from tailrace.delivery import port
from tailrace.delivery.planning.presenter import STOPPED_ELSEWHERE
from tailrace.delivery.text.split import CURSOR
from tailrace.errors import PlatformError
from tailrace.events import MessageStop, ToolCallChunk, ToolCallFinished, ToolOutputRecorded
from tailrace.messages import ToolFile
from tailrace.testing.clock import run_driven
from tailrace.testing.conformance.platform_rig import (
    NOWHERE,
    WRONG_TOKEN,
    Loss,
    OpenRig,
    PlatformRig,
    Scenario,
    connected,
)
from tailrace.testing.platforms.collecting_inbox import CollectingInbox
from tailrace.testing.platforms.loopback import RecordedCall
from tailrace.testing.platforms.played_runs import LONG, PNG, Scene, Timed, chunks, play, show

SEND = port.Send("k", "hello")
__all__ = ["NOWHERE", "WRONG_TOKEN", "Loss", "OpenRig", "PlatformConformance", "PlatformRig", "connected"]


class PlatformConformance:
    steps: ClassVar[tuple[str, ...]] = ("",)  # the fake's names of the requests that show an answer, in their order
    send_step: ClassVar[str] = ""  # its name of the request of a `Send`, where that is not the first step
    typing_step: ClassVar[str] = ""  # … of a `Typing`, which no flood holds back
    flood_s: ClassVar[int] = 17  # the wait that `PlatformRig.flood` asks for
    drives_clock: ClassVar[bool] = True
    drives_updates: ClassVar[bool] = True  # the same for the connection by which updates come
    redelivers: ClassVar[bool] = True  # what an inbox did not take comes again to the next run
    words: ClassVar[int] = 200
    pace_s: ClassVar[float] = 0.3
    long_piece: ClassVar[int] = 200  # characters of the long text at a time
    long_pace_s: ClassVar[float] = 0.4

    @pytest.fixture
    def open_rig(self) -> OpenRig:
        raise NotImplementedError

    @property
    def text(self) -> str:
        return " ".join(f"word{number}" for number in range(self.words))

    def _play(self, open_rig: OpenRig, scenario: Scenario, *, listening: bool = False, updates: bool = False) -> None:
        """`updates`: the scenario has the adapter run, by itself or as the rig's listener."""

        async def main() -> None:
            async with open_rig(listening=listening) as rig:
                await scenario(rig)

        driven = self.drives_clock and (self.drives_updates or not (listening or updates))
        run_driven(main()) if driven else asyncio.run(main())

    async def _pause(self, rig: PlatformRig) -> None:
        """Lets the budget of the chat recover. Costs no time on a driven clock."""
        if self.drives_clock:
            await asyncio.sleep(max(window.seconds / window.count for window in rig.capabilities.windows) + 1.0)

    # ── actions ──────────────────────────────────────────────────────────────────────────────────────────────

    def test_a_message_is_sent_edited_and_deleted_and_deleting_twice_is_fine(self, open_rig: OpenRig) -> None:
        async def scenario(rig: PlatformRig) -> None:
            reply = await rig.platform.perform(rig.place, SEND)
            assert isinstance(reply, port.Sent)
            await rig.shows("hello")
            if rig.capabilities.edits:
                await self._pause(rig)
                assert await rig.platform.perform(rig.place, port.Edit(reply.message_id, "goodbye")) == port.Accepted()
                await rig.shows("goodbye")
            if rig.capabilities.deletes:
                for _ in range(2):
                    await self._pause(rig)
                    assert await rig.platform.perform(rig.place, port.Delete(reply.message_id)) == port.Accepted()
                await rig.shows()

        self._play(open_rig, scenario)

    def test_what_the_platform_cannot_do_is_refused_without_a_request(self, open_rig: OpenRig) -> None:
        async def scenario(rig: PlatformRig) -> None:
            can = rig.capabilities
            possible: dict[port.AnyAction, bool] = {
                port.Edit("1", "hello"): can.edits,
                port.Delete("1"): can.deletes,
                port.Draft(1, "hello"): can.mode == "draft",
                port.Open("k", "hello"): can.mode == "stream",
                port.Close("1"): can.mode == "stream",
                port.LookUp("k", "hello"): can.resend == "look_up",
            }
            before = len(rig.fake.calls) if rig.fake else 0
            for action in [action for action, is_possible in possible.items() if not is_possible]:
                assert isinstance(await rig.platform.perform(rig.place, action), port.Refused), action
            assert before == (len(rig.fake.calls) if rig.fake else 0)

        self._play(open_rig, scenario)

    @pytest.mark.parametrize("loss", ["silence", "cut", "gateway"])
    def test_G80_a_send_without_a_reply_is_unknown_and_was_carried_out(self, open_rig: OpenRig, loss: Loss) -> None:
        """A second attempt gives the message of the first, or it is found; where neither can be, it is not made."""

        async def scenario(rig: PlatformRig) -> None:
            look_up = port.LookUp(SEND.key, SEND.text)
            if rig.capabilities.resend == "look_up":
                assert await rig.platform.perform(rig.place, look_up) == port.NotFound()
            rig.lose_answer(self.send_step or self.steps[0], loss)
            assert isinstance(await rig.platform.perform(rig.place, SEND), port.Unknown)
            await rig.shows("hello")
            match rig.capabilities.resend:
                case "idempotent":
                    first = await rig.platform.perform(rig.place, SEND)
                    other = await rig.platform.perform(rig.place, port.Send("another", "hello"))
                    assert isinstance(first, port.Sent)
                    assert isinstance(other, port.Sent)
                    assert first != other
                    await rig.shows("hello", "hello")
                case "look_up":
                    assert isinstance(await rig.platform.perform(rig.place, look_up), port.Sent)
                case "never":
                    pass

        self._play(open_rig, scenario)

    def test_a_refused_connection_is_certain_and_may_pass(self, open_rig: OpenRig) -> None:
        async def scenario(rig: PlatformRig) -> None:
            platform = rig.unreachable()
            try:
                assert isinstance(await platform.perform(rig.place, SEND), port.Failed)
                with pytest.raises(PlatformError) as lost:
                    await platform.check()
                assert not lost.value.permanent
                if not platform.hook_path:
                    with pytest.raises(PlatformError) as lost:
                        await platform.run(CollectingInbox())
                    assert not lost.value.permanent
            finally:
                await platform.close()

        self._play(open_rig, scenario)

    def test_a_wrong_token_is_permanent_and_never_shown(self, open_rig: OpenRig) -> None:
        async def scenario(rig: PlatformRig) -> None:
            platform = rig.stranger()
            attempts = [platform.check()] if platform.hook_path else [platform.check(), platform.run(rig.inbox)]
            try:
                for attempt in attempts:
                    with pytest.raises(PlatformError) as refused:
                        await attempt
                    assert refused.value.permanent
                    assert WRONG_TOKEN.partition(":")[2] not in str(refused.value)
                # An answer waits for the next token, as it does for a connection.
                assert isinstance(await platform.perform(rig.place, port.Send("k", "hello")), port.Failed)
            finally:
                await platform.close()

        self._play(open_rig, scenario)

    # ── answers ──────────────────────────────────────────────────────────────────────────────────────────────

    def test_an_answer_grows_in_one_message_or_comes_whole(self, open_rig: OpenRig) -> None:
        async def scenario(rig: PlatformRig) -> None:
            await show(rig.platform, rig.place, self.text, pace_s=self.pace_s)
            await rig.shows(self.text)
            [states] = rig.answers()
            least = 5 if self.drives_clock else 1
            assert (rig.update_count() > least) == (rig.capabilities.mode != "whole")
            shown = [state.removesuffix(CURSOR.strip()).rstrip() for state in states]
            assert all(later.startswith(earlier) for earlier, later in pairwise(shown))
            if rig.capabilities.mode == "edit":
                assert all(state.endswith(CURSOR) for state in states[:-1])
            assert not _refused_calls(rig)

        self._play(open_rig, scenario)

    def test_G78_a_flood_is_waited_out_and_it_stays_one_message(self, open_rig: OpenRig) -> None:
        def scenario(step: str) -> Scenario:
            async def flooded(rig: PlatformRig) -> None:
                fault = rig.flood(self.flood_s)
                assert rig.fake is not None
                rig.fake.fail(step, fault)
                await show(rig.platform, rig.place, self.text)
                await rig.shows(self.text)
                [first] = _refused_calls(rig)
                after = [call.at for call in rig.fake.calls if call.at > first.at and call.method != self.typing_step]
                assert min(after) >= first.at + self.flood_s

            return flooded

        for step in self.steps:
            self._play(open_rig, scenario(step))

    @pytest.mark.parametrize("loss", ["silence", "cut", "gateway"])
    def test_G80_an_answer_is_shown_once_though_a_reply_was_lost(self, open_rig: OpenRig, loss: Loss) -> None:
        """A lost send that can be neither repeated nor looked up ends as unknown; a lost beginning stays behind."""

        def scenario(step: str) -> Scenario:
            async def lost(rig: PlatformRig) -> None:
                rig.lose_answer(step, loss)
                scene = await show(rig.platform, rig.place, self.text)
                settled = rig.capabilities.resend != "never" or step != self.steps[0]
                if settled or rig.capabilities.mode != "edit":
                    await rig.shows(self.text)
                    assert (await scene.facts())[-1].state == ("confirmed" if settled else "unknown")
                assert rig.texts.count(self.text) == 1

            return lost

        for step in self.steps:
            self._play(open_rig, scenario(step))

    def test_G77_after_a_death_in_mid_stream_the_same_message_is_completed(self, open_rig: OpenRig) -> None:
        async def scenario(rig: PlatformRig) -> None:
            scene = Scene(rig.platform, rig.place)
            await scene.start()
            dying = asyncio.ensure_future(scene.deliver())
            pieces = chunks(self.text, pace_s=self.pace_s)
            half = len(pieces) // 2
            await scene.write(pieces[:half])
            if rig.capabilities.mode != "whole":
                await rig.until(lambda: rig.update_count() >= 1)
            dying.cancel()
            await asyncio.wait([dying])
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(scene.deliver())
                await scene.write(pieces[half:])
                await scene.end(self.text)
            await rig.shows(self.text)

        self._play(open_rig, scenario)

    @pytest.mark.parametrize("streaming", [True, False])
    def test_M149_text_before_a_tool_arrives_once_though_the_gateway_dies(
        self, open_rig: OpenRig, streaming: bool
    ) -> None:
        report, answer = f"Report: {self.text}", "Saved."
        first = [*chunks(report, pace_s=self.pace_s), Timed(0.0, MessageStop())]
        tool = [Timed(0.1, ToolCallChunk("write_file", "report.md")), Timed(0.1, ToolCallFinished("write_file", 0.1))]

        async def scenario(rig: PlatformRig) -> None:
            scene = Scene(rig.platform, rig.place, streaming=streaming)
            await scene.start()
            dying = asyncio.ensure_future(scene.deliver())
            await scene.write([*first, *tool[:1]])
            await rig.until(lambda: report in rig.texts)
            await self._pause(rig)
            dying.cancel()
            await asyncio.wait([dying])
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(scene.deliver())
                await scene.write([*tool[1:], *chunks(answer, pace_s=self.pace_s)])
                await scene.end(answer)
            await rig.until(lambda: answer in rig.texts)
            assert [text for text in rig.texts if text in (report, answer)] == [report, answer]
            if not streaming or rig.capabilities.mode == "whole":
                assert [states for states in rig.answers() if len(states) > 1] == [], "nothing before it was whole"
                assert sum("write_file" in text for text in rig.texts) == 1, "and the tool's line"

        self._play(open_rig, scenario)

    @pytest.mark.parametrize("streaming", [True, False])
    def test_an_answer_that_is_stopped_elsewhere_says_so(self, open_rig: OpenRig, streaming: bool) -> None:
        """By the page, say. A person who stops it in the chat is answered there, and needs no mark."""

        async def stop_by(rig: PlatformRig, name: str) -> None:
            scene = Scene(rig.platform, rig.place, streaming=streaming)
            await scene.start()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(scene.deliver())
                await scene.write(chunks(self.text, pace_s=self.pace_s))
                await scene.stop(self.text, by=name)

        async def scenario(rig: PlatformRig) -> None:
            await stop_by(rig, "the page")
            await rig.until(lambda: rig.texts and rig.texts[-1].endswith(STOPPED_ELSEWHERE))
            assert rig.texts[-1].endswith(STOPPED_ELSEWHERE)
            assert [text.removesuffix(STOPPED_ELSEWHERE).rstrip() for text in rig.texts] == [self.text]
            await self._pause(rig)
            await stop_by(rig, f"{rig.platform.name}:7")
            await rig.until(lambda: len(rig.texts) == 2 and rig.texts[-1] == self.text)
            assert rig.texts[-1] == self.text

        self._play(open_rig, scenario)

    def test_G82_G84_thirty_thousand_characters_arrive_in_order(self, open_rig: OpenRig) -> None:
        async def scenario(rig: PlatformRig) -> None:
            await play(rig.platform, rig.place, chunks(LONG, piece=self.long_piece, pace_s=self.long_pace_s), LONG)
            await rig.until(lambda: rig.texts and "def f249" in rig.texts[-1])
            lines = "\n".join(rig.texts).splitlines()
            assert [line for line in lines if line.startswith("def f")] == [f"def f{n}():" for n in range(250)] * 2
            cells = [line.lstrip("| ").split() for line in lines]
            assert [cell[1] for cell in cells if cell[:1] == ["row"]] == [str(n) for n in range(120)]
            shown = "\n".join(lines)
            assert shown.count("👩‍👩‍👧‍👦🏳️‍🌈") == shown.count("بالعالم") == 200
            assert CURSOR.strip() not in shown
            assert all(text.count("```") % 2 == 0 for text in rig.texts)
            assert not _refused_calls(rig)
            rig.check_long_text()

        self._play(open_rig, scenario)

    def test_a_file_of_a_tool_arrives_or_is_named(self, open_rig: OpenRig) -> None:
        """Between its tool and the answer, streamed or not, and once though the reply to it is lost."""
        picture = ToolFile("plot-1.png", "image/png", PNG)
        notes = ToolFile("notes.txt", "text/plain", b"some notes")
        called = [
            Timed(0.1, ToolCallChunk("plot")),
            Timed(0.0, ToolOutputRecorded("c1", "plot", "drawn", files=(picture, notes))),
            Timed(0.0, ToolCallFinished("plot", 0.1)),
        ]

        async def scenario(rig: PlatformRig) -> None:
            await play(rig.platform, rig.place, [*called, *chunks("There.")], "There.")
            await rig.until(lambda: "There." in rig.texts)
            if rig.capabilities.max_file_bytes:
                assert await rig.files() == [PNG, b"some notes"]
                assert not any("📎" in text for text in rig.texts)
            else:
                assert [text for text in rig.texts if "📎" in text] == [
                    f"📎 `plot-1.png` (image/png, {len(PNG)} bytes)",
                    "📎 `notes.txt` (text/plain, 10 bytes)",
                ]
            assert rig.texts[-1] == "There."

        self._play(open_rig, scenario)

    # ── updates ──────────────────────────────────────────────────────────────────────────────────────────────

    def test_a_message_arrives(self, open_rig: OpenRig) -> None:
        async def scenario(rig: PlatformRig) -> None:
            await rig.write("hello")
            [update] = await rig.inbox.wait_for(1)
            assert isinstance(update, port.MessageReceived)
            assert (update.text, update.addressed, update.attachments) == ("hello", True, ())
            assert (update.place.platform, update.place.chat) == (rig.platform.name, rig.place.chat)
            assert update.sender.id

        self._play(open_rig, scenario, listening=True)

    def test_G88_an_update_that_comes_again_has_the_same_id(self, open_rig: OpenRig) -> None:
        async def scenario(rig: PlatformRig) -> None:
            await rig.write_twice("hello")
            first, second = await rig.inbox.wait_for(2)
            assert first == second
            await rig.write("hello")
            assert (await rig.inbox.wait_for(3))[2].update_id != first.update_id

        self._play(open_rig, scenario, listening=True)

    def test_a_file_is_fetched_up_to_a_size(self, open_rig: OpenRig) -> None:
        async def scenario(rig: PlatformRig) -> None:
            await rig.attach("notes.txt", b"some notes")
            [update] = await rig.inbox.wait_for(1)
            assert isinstance(update, port.MessageReceived)
            [notes] = update.attachments
            assert (notes.name, notes.media_type) == ("notes.txt", "text/plain")
            assert await rig.platform.fetch(notes, max_bytes=10) == b"some notes"
            for attachment in (notes, port.Attachment(notes.ref, "notes.txt")):
                with pytest.raises(PlatformError, match="larger than 9 bytes"):
                    await rig.platform.fetch(attachment, max_bytes=9)

        self._play(open_rig, scenario, listening=True)

    def test_G88_what_an_inbox_did_not_take_comes_to_the_next_run(self, open_rig: OpenRig) -> None:
        if not self.redelivers:
            pytest.skip("the platform delivers an update once")

        async def scenario(rig: PlatformRig) -> None:
            closed, inbox = CollectingInbox(), CollectingInbox()
            closed.closed = True
            run = asyncio.ensure_future(rig.platform.run(closed))
            await closed.wait_connected()
            await rig.write("hello")
            with pytest.raises(PlatformError):
                await run
            run = asyncio.ensure_future(rig.platform.run(inbox))
            update = (await inbox.wait_for(1))[0]
            assert isinstance(update, port.MessageReceived)
            assert update.text == "hello"
            run.cancel()
            await asyncio.wait([run])

        self._play(open_rig, scenario, updates=True)


def _refused_calls(rig: PlatformRig) -> list[RecordedCall]:
    return [call for call in rig.fake.calls if call.status >= 400] if rig.fake else []
