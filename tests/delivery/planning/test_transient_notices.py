"""What a chat is told while it waits: that the process restarts, that it is back, that a long run goes on."""

from __future__ import annotations

from itertools import pairwise

import pytest

from delivery.planning.played_plans import EDITING, Stage, answer, numbered
from tailrace.delivery.planning.state import Showing, Wait
from tailrace.delivery.planning.transient_notices import LONG_RUN_S
from tailrace.delivery.port import Capabilities, Delete, Edit, Send, Typing, Window
from tailrace.events import (
    AnyEvent,
    ApprovalAsked,
    Entry,
    GatewayNotice,
    MessageChunk,
    MessageStop,
    RunStarted,
    ToolCallChunk,
    ToolCallFinished,
)

WHOLE = Capabilities(windows=(Window(1, 1.0),))
WORDS = [f"word{number} " for number in range(30)]
TEXT = "".join(WORDS)
BEGUN: list[AnyEvent] = [RunStarted("agent"), ToolCallChunk("terminal", "make test", index=0)]
ENDED: list[AnyEvent] = [ToolCallFinished("terminal", 900.0, index=0), *answer("Done.")[1:]]
RESTARTING = "⏸ Restarting; this goes on afterwards."


def stage_of(
    capabilities: Capabilities, events: list[AnyEvent], *, streaming: bool = False
) -> tuple[Stage, list[Entry]]:
    log = numbered([*events, *ENDED])
    stage = Stage(capabilities, showing=Showing(streaming=streaming))
    stage.feed(log[: len(events)])
    return stage, log


@pytest.mark.parametrize("streaming", [True, False])
def test_a_run_that_shows_nothing_for_minutes_says_so_in_one_message_that_is_edited(streaming: bool) -> None:
    stage, log = stage_of(EDITING, BEGUN, streaming=streaming)
    stage.run_until(stage.now + LONG_RUN_S - 1)
    assert not any("Still working" in text for text in stage.chat.texts)
    stage.run_until(stage.now + 2)
    assert stage.chat.texts[-1] == "⏳ Still working, 3 min: running `make test`"
    stage.run_until(stage.now + 600)
    assert stage.chat.texts[-1] == "⏳ Still working, 13 min: running `make test`"
    assert len([action for action in stage.actions if isinstance(action, Send)]) == 1 + streaming
    stage.feed(log[2:])
    stage.finish()
    assert stage.chat.texts == ("✓ **terminal** `make test` (900.0 s)", "Done."), "and it goes when there is news"


def test_where_nothing_is_edited_it_is_a_message_now_and_then() -> None:
    stage, log = stage_of(WHOLE, BEGUN)
    began = stage.now
    stage.run_until(stage.now + 3600)
    said = [at - began for at, texts in stage.chat.screens if texts]
    assert len(said) == 5
    assert all(later >= 2 * earlier - 2 for earlier, later in pairwise(said)), "at growing intervals"
    stage.feed(log[2:])
    stage.finish()
    assert stage.chat.texts[-2:] == ("✓ **terminal** `make test` (900.0 s)", "Done.")


def test_text_that_grows_a_question_and_what_was_just_shown_need_no_such_note() -> None:
    stage = Stage()
    stage.feed(numbered([RunStarted("agent"), *(MessageChunk(word) for word in WORDS)]))
    stage.run_until(stage.now + 1000)
    assert len(stage.chat.visible) == 1
    asking, _ = stage_of(EDITING, [*BEGUN, ApprovalAsked("a1", "terminal", "rm x", "digest")])
    asking.run_until(asking.now + 1000)
    assert not any("Still working" in text for text in asking.chat.texts)
    busy = Stage(showing=Showing())
    for number in range(10):
        busy.feed(numbered([MessageChunk(f"Step {number}."), MessageStop()], first=2 * number + 1))
        busy.run_until(busy.now + LONG_RUN_S - 10)
    assert not any("Still working" in text for text in busy.chat.texts)


@pytest.mark.parametrize("streaming", [True, False])
def test_I102_a_run_that_is_set_aside_is_not_said_to_go_on(streaming: bool) -> None:
    stage, log = stage_of(EDITING, [*BEGUN, GatewayNotice("parked", "It died 3 times.")], streaming=streaming)
    stage.run_until(stage.now + 10)
    shown, before = stage.chat.texts, len(stage.actions)
    assert "It died 3 times." in shown[-1]
    stage.run_until(stage.now + 10 * LONG_RUN_S)
    assert (stage.chat.texts, stage.actions[before:]) == (shown, [])
    stage.planner.suspend()
    stage.run_until(stage.now + 10)
    assert stage.chat.texts == shown, "nothing of it goes on after a restart"
    restarted, log = stage_of(EDITING, [*BEGUN, GatewayNotice("parked", "It died 3 times.")], streaming=streaming)
    restarted.run_until(restarted.now + 10)
    restarted.feed(log[3:])
    restarted.finish()
    assert restarted.chat.texts[-1] == "Done."


@pytest.mark.parametrize("capabilities", [EDITING, WHOLE], ids=["edits", "cannot edit"])
def test_a_drain_that_cuts_an_answer_is_said(capabilities: Capabilities) -> None:
    stage, log = stage_of(capabilities, BEGUN)
    stage.run_until(stage.now + 10)
    stage.planner.suspend()
    stage.finish()
    assert stage.chat.texts == (RESTARTING,)
    stage.restart(log[:2])
    stage.run_until(stage.now + 10)
    assert stage.chat.texts == (RESTARTING,)
    stage.feed(log[2:])
    stage.finish()
    before = [] if capabilities.deletes else [RESTARTING]
    assert list(stage.chat.texts) == [*before, "✓ **terminal** `make test` (900.0 s)", "Done."]


def test_a_text_that_was_cut_goes_on_in_its_message_without_another_word() -> None:
    stage = Stage()
    log = numbered(answer(*WORDS))
    stage.feed(log[:25])
    stage.run_until(stage.now + 5)
    stage.planner.suspend()
    stage.finish()
    assert "Interrupted by a restart" in stage.chat.texts[0]
    stage.restart(log[:25])
    stage.run_until(stage.now + 20)
    stage.feed(log[25:])
    stage.finish()
    assert stage.chat.texts == (TEXT,)
    assert len(stage.chat.messages) == 1


def test_a_notice_that_was_shown_is_replaced_by_the_next_of_its_kind() -> None:
    stage = Stage()
    stage.feed(numbered([RunStarted("agent"), GatewayNotice("stalled", "No response for 240s.")]))
    stage.run_until(stage.now + 60)
    stage.feed(numbered([GatewayNotice("stalled", "No response for 300s.")], first=3))
    stage.run_until(stage.now + 10)
    assert stage.chat.texts == ("No response for 300s.",)
    assert {type(action) for action in stage.actions} <= {Send, Edit, Typing, Delete}


def test_a_delivery_that_has_ended_waits_for_nothing() -> None:
    stage, log = stage_of(EDITING, BEGUN)
    stage.run_until(stage.now + LONG_RUN_S + 1)
    stage.feed(log[2:])
    stage.finish()
    assert not isinstance(stage.planner.step(stage.now), Wait)
