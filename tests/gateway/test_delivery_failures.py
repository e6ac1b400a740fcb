"""No answer ends for good without a word: what failed is tried again, and where that cannot be, the chat is told."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from proof.memory_platform import Fault, MemoryPlatform

from delivery.planning.played_plans import EDITING
from gateway.fake_gateways import town
from tailrace.agent.turn_spec import TurnSpec
from tailrace.delivery.ledger import DeliverySpec, new_delivery
from tailrace.delivery.planning.planner import Planner
from tailrace.delivery.planning.presenter import CUT_OFF, UNSHOWN, restart_notice
from tailrace.delivery.planning.replies import MAX_TRIES_IN_DOUBT
from tailrace.delivery.port import AnyAction, AnyReply, Capabilities, Edit, Failed, Gone, Place, Refused, Send, Typing
from tailrace.events import Delivered
from tailrace.messages import user
from tailrace.ports import Run
from tailrace.runs.recovery import finished
from tailrace.testing.clock import driven
from tailrace.testing.provider import Reply, Scenario, refuse, reply

TEXT = " ".join(f"word{number}" for number in range(40))
SLOW = Scenario(reply=reply(TEXT), pace_s=0.3)
IDEMPOTENT = msgspec.structs.replace(EDITING, resend="idempotent")


class Raising(MemoryPlatform):
    """An adapter with a bug: the first actions that the test names raise, after or before they were carried out."""

    def __init__(
        self, capabilities: Capabilities, broken: Callable[[AnyAction], bool], *, times: int, done: bool
    ) -> None:
        super().__init__(capabilities)
        self._broken, self._times, self._done = broken, times, done

    async def perform(self, place: Place, action: AnyAction) -> AnyReply:
        if self._times and self._broken(action):
            self._times -= 1
            if self._done:
                await super().perform(place, action)
            raise KeyError("a field that is not there")
        return await super().perform(place, action)


def is_edit(action: AnyAction) -> bool:
    return isinstance(action, Edit)


def is_send(action: AnyAction) -> bool:
    return isinstance(action, Send)


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize(("capabilities", "broken"), [(EDITING, is_edit), (IDEMPOTENT, is_send), (IDEMPOTENT, is_edit)])
@driven
async def test_an_adapter_that_raises_does_not_end_the_delivery(
    tmp_path: Path, capabilities: Capabilities, broken: Callable[[AnyAction], bool], done: bool
) -> None:
    platform = Raising(capabilities, broken, times=3, done=done)
    async with town(tmp_path, SLOW, platform=platform) as here:
        await here.write("Count.")
        await asyncio.sleep(120)
        assert here.chat.texts == (TEXT,)
        [delivery] = await here.app.journal.runs(kind="delivery")
        assert delivery.state == "completed"


@driven
async def test_a_send_that_raised_and_cannot_be_repeated_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    platform = Raising(EDITING, is_send, times=1, done=False)
    async with town(tmp_path, reply("Here."), platform=platform, streaming=False) as here:
        await here.write("Hello.")
        await asyncio.sleep(30)
        assert here.chat.texts == (UNSHOWN,)
        [delivery] = await here.app.journal.runs(kind="delivery")
        assert delivery.finished is not None
        assert delivery.finished.error is not None
        assert "KeyError in the adapter" in delivery.finished.error.message
    said = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert any(re.match("telegram:42: a part of run .* could not be shown", record.getMessage()) for record in said)


@driven
async def test_a_send_that_raises_at_every_try_is_said(tmp_path: Path) -> None:
    platform = Raising(IDEMPOTENT, is_send, times=MAX_TRIES_IN_DOUBT, done=False)
    async with town(tmp_path, reply("Here."), platform=platform, streaming=False) as here:
        await here.write("Hello.")
        await asyncio.sleep(1800)
        assert here.chat.texts == (UNSHOWN,)
        [delivery] = await here.app.journal.runs(kind="delivery")
        assert delivery.finished is not None
        assert delivery.finished.error is not None
        assert "KeyError in the adapter" in delivery.finished.error.message


@driven
async def test_an_answer_that_the_platform_refuses_is_said_in_a_short_message(tmp_path: Path) -> None:
    def fault(_: Place, action: AnyAction) -> Fault:
        return Refused("against a policy") if isinstance(action, Send) and "word1" in action.text else None

    platform = MemoryPlatform(EDITING, fault=fault)
    async with town(tmp_path, reply(TEXT), platform=platform, streaming=False) as here:
        await here.write("Count.")
        await asyncio.sleep(30)
        assert here.chat.texts == (UNSHOWN,)


@driven
async def test_a_platform_that_is_away_for_half_an_hour_still_gets_its_answer(tmp_path: Path) -> None:
    away = True

    def fault(_: Place, action: AnyAction) -> Fault:
        return Failed("no connection") if away and not isinstance(action, Typing) else None

    platform = MemoryPlatform(EDITING, fault=fault)
    async with town(tmp_path, reply("Here."), platform=platform, streaming=False) as here:
        await here.write("Hello.")
        await asyncio.sleep(1000)
        away = False
        platform.cut_connection()  # and connected again
        await asyncio.sleep(10)
        assert here.chat.texts == ("Here.",)


@driven
async def test_an_answer_in_a_chat_that_puts_the_bot_out_ends_there_and_is_not_repeated_when_it_is_back(
    tmp_path: Path,
) -> None:
    out = False

    def fault(_: Place, _action: AnyAction) -> Fault:
        return Gone("chat") if out else None

    platform = MemoryPlatform(EDITING, fault=fault)
    async with town(tmp_path, SLOW, reply("Back."), platform=platform) as here:
        await here.write("Count.")
        await asyncio.sleep(5)
        [half] = here.chat.texts
        assert half.endswith("▌")
        out = True
        await asyncio.sleep(60)
        [delivery] = await here.app.journal.runs(kind="delivery")
        assert delivery.finished is not None
        assert delivery.finished.error is not None
        assert delivery.finished.error.message == "the chat is gone"
        tried = len(platform.performed)
        await asyncio.sleep(3_600)
        assert len(platform.performed) == tried, "nothing is tried again"
        out = False
        platform.cut_connection()  # and connected again
        await here.write("And now?")
        await asyncio.sleep(60)
        assert here.chat.texts == (half, "Back.")


@driven
async def test_an_answer_that_waits_for_another_token_is_said_in_the_log_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    revoked = True

    def fault(_: Place, _action: AnyAction) -> Fault:
        return Failed("the token was revoked", needs_operator=True) if revoked else None

    platform = MemoryPlatform(EDITING, fault=fault)
    async with town(tmp_path, reply("Here."), platform=platform, streaming=False) as here:
        await here.write("Hello.")
        await asyncio.sleep(1000)
        revoked = False
        await asyncio.sleep(100)
        assert here.chat.texts == ("Here.",)
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert [text.partition(": ")[2] for text in said] == ["an answer waits to be shown: the token was revoked"]


@driven
async def test_a_process_that_ends_does_not_wait_for_an_answer_that_needs_another_token(tmp_path: Path) -> None:
    def fault(_: Place, _action: AnyAction) -> Fault:
        return Failed("the token was revoked", needs_operator=True)

    platform, loop = MemoryPlatform(EDITING, fault=fault), asyncio.get_running_loop()
    async with town(tmp_path, reply("Here."), platform=platform, streaming=False) as here:
        await here.write("Hello.")
        await asyncio.sleep(100)
        here.gateway.take_no_more()
        told_at = loop.time()
        await here.gateway.__aexit__(None, None, None)
        assert loop.time() - told_at < 5
        [delivery] = await here.app.journal.runs(kind="delivery")
        assert (delivery.finished, delivery.owner) == (None, ""), "the next process goes on with it"


@pytest.mark.parametrize(("times", "shown"), [(2, (TEXT,)), (99, (UNSHOWN,))])
@driven
async def test_an_error_of_our_own_is_tried_again_from_the_ledger_and_then_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int, shown: tuple[str, ...]
) -> None:
    """A planner that fails on every reply of a run with an answer, as a bug of ours would."""
    replied, left = Planner.replied, [times]

    def failing(planner: Planner, answer: AnyReply, now: float) -> object:
        delivery = planner.outline.finished is not None and planner.outline.finished.usage.output_tokens
        if left[0] and delivery:
            left[0] -= 1
            raise RuntimeError("a state that cannot be")
        return replied(planner, answer, now)

    monkeypatch.setattr(Planner, "replied", failing)
    async with town(tmp_path, reply(TEXT), capabilities=IDEMPOTENT, streaming=False) as here:
        await here.write("Count.")
        await asyncio.sleep(120)
        assert here.chat.texts[-1:] == shown
        assert here.chat.texts.count(TEXT) == 1


@driven
async def test_an_update_that_cannot_be_handled_does_not_hold_up_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with town(tmp_path, reply("Here.")) as here:
        with monkeypatch.context() as broken:
            broken.setattr(here.app.agents, "submit", lambda *_, **__: 1 / 0)
            await here.write("Hello.")
        await asyncio.sleep(5)
        assert here.chat.texts == ("⚠️ Something went wrong with this message.",)
        await here.write("Hello?")
        await asyncio.sleep(10)
        assert "Here." in here.chat.texts


@driven
async def test_that_a_message_could_not_be_handled_is_said_beside_the_reply_to_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with town(tmp_path, reply("Here."), capabilities=IDEMPOTENT) as here:
        monkeypatch.setattr(here.app.agents, "submit", lambda *_, **__: 1 / 0)
        await here.write("/new Hello?")
        await asyncio.sleep(10)
        told = {"A new conversation begins.", "⚠️ Something went wrong with this message."}
        assert set(here.chat.texts) == told


async def test_a_drain_is_said_to_the_chat_that_waits_and_to_no_other(tmp_path: Path) -> None:
    platform = MemoryPlatform(EDITING)
    stuck = Scenario(reply=reply(TEXT), pace_s=30.0)
    async with town(tmp_path, stuck, platform=platform, store="sqlite:///t.db", drain_s=0.01, streaming=False) as here:
        await here.write("Count.")
        await here.provider.request(0)
        platform.chat("43")
    assert [text for chat in platform.chats.values() for text in chat.texts] == [restart_notice().text]
    async with town(tmp_path, reply(TEXT), platform=platform, store="sqlite:///t.db", streaming=False) as here:
        [run_id] = await here.runs()
        assert (await here.app.agents.finished(run_id)).output == TEXT
        [delivery] = await here.app.journal.runs(kind="delivery")
        await finished(here.app.journal, delivery.id)
        assert here.chat.texts == (TEXT,)


@driven
async def test_why_a_platform_is_not_connected_stays_told_whatever_answers_meet(tmp_path: Path) -> None:
    faults: list[Fault] = [Failed("the token was revoked", needs_operator=True), Failed("no answer")]

    def fault(_: Place, action: AnyAction) -> Fault:
        return faults.pop(0) if faults and isinstance(action, Send) else None

    platform = MemoryPlatform(EDITING, fault=fault)
    async with town(tmp_path, reply(TEXT), platform=platform) as here:
        await asyncio.sleep(1)  # it is connected
        here.app.platforms_down.mark("telegram", "the token was refused; it is not tried again before a restart")
        await here.write("Count.")
        await asyncio.sleep(60)
        assert (here.chat.texts, faults) == ((TEXT,), [])
        assert here.app.degraded == {"telegram": "the token was refused; it is not tried again before a restart"}


@driven
async def test_a_paste_that_cannot_become_a_question_is_told_so_and_ends_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with town(tmp_path, reply("Still here.")) as here:
        submit = here.app.agents.submit

        async def broken(*_: object, **__: object) -> Run:
            monkeypatch.setattr(here.app.agents, "submit", submit)
            raise ZeroDivisionError

        monkeypatch.setattr(here.app.agents, "submit", broken)
        await here.write("a" * 4096, at_limit=True)
        await asyncio.sleep(10)
        await here.write("Are you there?")
        await asyncio.sleep(10)
        assert here.chat.texts == ("⚠️ Something went wrong with this message.", "Still here.")
    assert [record.getMessage() for record in caplog.records if record.exc_info] == [
        "telegram: a message could not be handled"
    ]


@driven
@pytest.mark.parametrize("script", [[Reply()] * 3, [reply(refuse("I would rather not."))]], ids=["empty", "refused"])
async def test_N169_an_answer_without_text_is_one_sentence_once(tmp_path: Path, script: list[Reply]) -> None:
    async with town(tmp_path, *script) as here:
        await here.write("Say something.")
        await asyncio.sleep(60)
        [told] = here.chat.texts
    assert told in ("⚠️ the model gave no answer", "I would rather not.")


@driven
@pytest.mark.parametrize(("sent", "told"), [(False, UNSHOWN), (True, CUT_OFF)])
async def test_N170_a_delivery_that_killed_its_gateways_is_replaced_by_a_sentence(
    tmp_path: Path, sent: bool, told: str
) -> None:
    """Where a message may have been sent, the sentence does not deny it."""
    async with town(tmp_path, reply(TEXT)) as here:
        journal, place = here.app.journal, Place("telegram", "42")
        run = await here.app.agents.submit(TurnSpec(user("Count.")), session="telegram:42")
        await finished(journal, run.id)
        delivery = await journal.create(new_delivery(DeliverySpec(run.id, place)))
        for owner in ("one", "another", "a third"):
            lease = await journal.claim(delivery.id, owner, lease_s=0)
            if sent and owner == "one":
                assert lease is not None
                journal.append(lease, [Delivered("answer.0", "unknown")])
        await asyncio.sleep(60)
        assert here.chat.texts == (told,)
        states = {run.id: run.state for run in await journal.runs(kind="delivery")}
    assert states.pop(delivery.id) == "parked"
    assert list(states.values()) == ["completed"]
