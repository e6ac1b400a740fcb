"""What a planner does about a reply that does not come, and where another process died."""

from __future__ import annotations

import pytest
from proof.memory_platform import Fault, LostReply

from delivery.planning.played_plans import (
    DRAFTING,
    EDITING,
    NATIVE,
    TEXT,
    WORDS,
    Stage,
    answer,
    edits,
    numbered,
    once,
    sends,
)
from tailrace.delivery.planning.presenter import CUT_OFF, UNSHOWN
from tailrace.delivery.planning.replies import MAX_TRIES_IN_DOUBT
from tailrace.delivery.planning.state import Done, Showing
from tailrace.delivery.port import AnyAction, Capabilities, Edit, Failed, LookUp, Send, Unknown
from tailrace.delivery.text.split import CURSOR
from tailrace.events import Delivered, MessageChunk, RunStarted

# ── replies that do not come ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("done", [True, False])
def test_G80_a_whole_text_whose_reply_was_lost_is_never_sent_again(done: bool) -> None:
    _, strike = once(LostReply(done=done), Send)
    stage = Stage(showing=Showing(), fault=strike)  # type: ignore[arg-type]
    stage.feed(entries := numbered(answer(*WORDS)))
    stage.finish()
    assert len(sends(stage)) == 1
    assert stage.facts == [Delivered("t0.0", "unknown", final=True)]
    stage.restart(entries)
    stage.finish()
    assert [send.text for send in sends(stage) if isinstance(send, Send)][1:] == [CUT_OFF]


def test_G80_a_whole_text_that_was_hardly_sent_is_not_sent_again_and_the_chat_is_told() -> None:
    _, strike = once(Unknown("no status", unlikely=True), Send)
    stage = Stage(showing=Showing(), fault=strike)  # type: ignore[arg-type]
    stage.feed(numbered(answer(*WORDS)))
    stage.finish()
    assert stage.chat.texts == (UNSHOWN,)
    assert stage.planner.state.unshown == {"t0.0": "no status"}


def test_G80_a_partial_text_whose_reply_was_lost_is_one_stray_and_the_answer_comes_whole() -> None:
    _, strike = once(LostReply(done=True), Send)
    stage = Stage(fault=strike)  # type: ignore[arg-type]
    stage.stream(answer(*WORDS))
    assert len(stage.chat.messages) == 2
    assert stage.chat.texts[1] == TEXT
    assert len(edits(stage)) == 0


@pytest.mark.parametrize("done", [True, False])
def test_G80_where_the_platform_can_be_asked_it_is_asked(done: bool) -> None:
    _, strike = once(LostReply(done=done), Send)
    capabilities = Capabilities(mode="edit", edits=True, resend="look_up")
    stage = Stage(capabilities, fault=strike)  # type: ignore[arg-type]
    stage.stream(answer(*WORDS))
    assert any(isinstance(action, LookUp) for action in stage.actions)
    assert stage.chat.texts == (TEXT,)


@pytest.mark.parametrize("done", [True, False])
def test_G80_where_a_key_makes_it_safe_the_same_message_is_asked_for_again(done: bool) -> None:
    _, strike = once(LostReply(done=done), Send)
    capabilities = Capabilities(mode="edit", edits=True, resend="idempotent")
    stage = Stage(capabilities, fault=strike)  # type: ignore[arg-type]
    stage.stream(answer(*WORDS))
    keys = {action.key for action in sends(stage) if isinstance(action, Send)}
    assert keys == {"d1.t0.0.0"}
    assert stage.chat.texts == (TEXT,)


def test_G80_a_whole_text_that_may_have_been_sent_keeps_its_key_when_the_tries_are_used_up() -> None:
    def lose_then_fail(action: AnyAction) -> Fault:
        return (
            (LostReply(done=True) if not stage.chat.messages else Failed("down")) if isinstance(action, Send) else None
        )

    stage = Stage(Capabilities(resend="idempotent"), fault=lose_then_fail)
    stage.feed(entries := numbered(answer("short")))
    stage.finish()
    assert stage.facts[-1] == Delivered("t0.0", "unknown", final=True)
    stage.fault = None
    stage.restart(entries)
    stage.finish()
    assert stage.chat.texts == ("short",), "the same key: the platform gives the message of the first attempt"


def test_G80_a_connection_that_comes_and_goes_does_not_prolong_the_tries_of_a_text_in_doubt() -> None:
    fault: Fault = LostReply(done=False)
    stage = Stage(Capabilities(resend="idempotent"), fault=lambda action: fault if isinstance(action, Send) else None)
    stage.feed(numbered(answer("short")))
    for _ in range(10 * MAX_TRIES_IN_DOUBT):
        stage.run_until(stage.now + 2.0)
        stage.planner.try_again()
    assert isinstance(stage.act(), Done)
    assert len(sends(stage)) == MAX_TRIES_IN_DOUBT


def test_G80_an_edit_is_simply_repeated() -> None:
    stage = Stage()
    lost: list[AnyAction] = []

    def lose(action: AnyAction) -> Fault:
        if isinstance(action, Edit) and action.final and len(lost) < 3:
            lost.append(action)
            return LostReply(done=len(lost) == 2)
        return None

    stage.fault = lose
    stage.stream(answer(*WORDS))
    assert len(lost) == 3
    assert stage.chat.texts == (TEXT,)


# ── a process that dies ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("capabilities", [EDITING, DRAFTING, NATIVE], ids=["edit", "draft", "stream"])
def test_G77_another_process_finishes_the_same_message_wherever_the_first_one_died(capabilities: Capabilities) -> None:
    events = numbered(answer(*WORDS))
    for died_after in range(1, len(events), 7):
        stage = Stage(capabilities)
        for entry in events[:died_after]:
            stage.feed([entry])
            stage.run_until(stage.now + 0.2)
        stage.restart(events[:died_after])
        for entry in events[died_after:]:
            stage.feed([entry])
            stage.run_until(stage.now + 0.2)
        stage.finish()
        assert stage.chat.texts == (TEXT,)
        assert len(stage.chat.messages) == 1


def test_G77_a_process_that_died_between_asking_and_hearing_leaves_it_on_record() -> None:
    stage = Stage(showing=Showing())
    stage.feed(entries := numbered(answer("all of it")))
    action = stage.planner.step(stage.now)
    assert isinstance(action, Send)
    assert stage.planner.write_ahead == Delivered("t0.0", "unknown", final=True)
    facts = [stage.planner.write_ahead]
    stage.restart(entries, facts=facts)
    stage.finish()
    assert stage.chat.texts == (CUT_OFF,), "it may be there: never a blind second send (N170)"
    stage.restart(entries, facts=[*facts, *stage.facts])
    stage.finish()
    assert stage.chat.texts == (CUT_OFF,)


def test_after_the_end_a_restart_does_nothing() -> None:
    stage = Stage()
    stage.feed(entries := numbered(answer(*WORDS)))
    stage.finish()
    done = len(stage.actions)
    stage.restart(entries)
    stage.finish()
    assert len(stage.actions) == done


def test_a_shutdown_says_so_in_the_message_and_the_next_process_goes_on_with_it() -> None:
    events = numbered(answer(*WORDS))
    stage = Stage()
    stage.feed(events[:60])
    stage.run_until(stage.now + 2)
    stage.planner.suspend()
    stage.finish()
    [shown] = stage.chat.texts
    assert shown.endswith("\n\n⏸ Interrupted by a restart; this goes on afterwards.")
    assert CURSOR not in shown
    stage.restart(events)
    stage.finish()
    assert stage.chat.texts == (TEXT,)
    assert len(stage.chat.messages) == 1


def test_a_shutdown_leaves_what_a_preview_showed_in_a_message_which_is_gone_on_with() -> None:
    events = numbered(answer(*WORDS))
    stage = Stage(DRAFTING)
    stage.feed(events[:60])
    stage.run_until(stage.now + 2)
    assert stage.chat.draft
    assert not stage.chat.messages
    stage.planner.suspend()
    stage.finish()
    [shown] = stage.chat.messages
    assert shown.text.endswith("\n\n⏸ Interrupted by a restart; this goes on afterwards.")
    stage.restart(events)
    stage.finish()
    assert stage.chat.texts == (TEXT,)
    assert len(stage.chat.messages) == 1


def test_G80_a_cut_preview_whose_message_got_no_reply_is_sent_once_and_the_answer_follows() -> None:
    events = numbered(answer(*WORDS))

    def partial(action: AnyAction) -> bool:
        return isinstance(action, Send) and not action.final

    stage = Stage(DRAFTING, fault=lambda action: LostReply(done=False) if partial(action) else None)
    stage.feed(events[:60])
    stage.run_until(stage.now + 2)
    stage.planner.suspend()
    stage.finish()
    assert len(list(filter(partial, stage.actions))) == 1
    stage.restart(events)
    stage.finish()
    assert stage.chat.texts[-1] == TEXT


def test_a_shutdown_before_anything_was_shown_is_said_in_a_message() -> None:
    stage = Stage()
    stage.feed(numbered([RunStarted("agent"), MessageChunk("a")]))
    stage.act()
    stage.planner.suspend()
    stage.finish()
    assert stage.chat.texts == ("⏸ Restarting; this goes on afterwards.",)
