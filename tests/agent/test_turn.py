"""Playbooks: apply these facts, then that is due."""

from __future__ import annotations

import pytest

from tailrace.agent.turn import INTERRUPTED, NEVER_RAN, CallModel, Finish, GiveUp, RunTool, SettleTool, Turn, TurnLimits
from tailrace.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    AttemptDiscarded,
    HistoryCompressed,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    RunFinished,
    ToolCallChunk,
    ToolCallFinished,
    ToolOutputRecorded,
    UsageRecorded,
)
from tailrace.messages import Message, Text, ToolCall, ToolResult, Usage, assistant, user

LS = ToolCall("c1", "terminal", '{"command":"ls"}')
CAT = ToolCall("c2", "read_file", '{"path":"x"}')
BOTH = Message("assistant", (Text("Looking."), LS, CAT))


def turn(*facts: AnyEvent, limits: TurnLimits | None = None, foreign: tuple[str, ...] = ()) -> Turn:
    made = Turn(limits=limits, foreign=foreign)
    for fact in (MessageRecorded(user("hi")), *facts):
        made.apply(fact, 1)
    return made


def answer(text: str, stop: str = "end") -> tuple[AnyEvent, AnyEvent]:
    """An answer as it stands in the log: shown, then recorded."""
    return MessageChunk(text), MessageRecorded(assistant(text), stop)


def test_a_question_is_for_the_model() -> None:
    assert turn().due() == [CallModel()]


def test_an_answer_ends_the_turn() -> None:
    done = turn(MessageChunk("Hel"), MessageChunk("lo"), MessageRecorded(assistant("Hello"), "end"))
    assert done.due() == [Finish("completed", "Hello")]
    done.apply(RunFinished("completed", "Hello"))
    assert done.due() == []


def test_after_a_crash_in_the_middle_of_a_text_the_model_goes_on_from_it() -> None:
    assert turn(MessageChunk("Hel")).due() == [CallModel("Hel")]


def test_what_a_discarded_attempt_showed_is_not_gone_on_from() -> None:
    assert turn(MessageChunk("Hel"), AttemptDiscarded()).due() == [CallModel()]


def test_tools_of_one_answer_are_due_together_and_the_model_after_the_last() -> None:
    both = turn(MessageRecorded(BOTH, "tools"))
    assert both.due() == [RunTool(0, LS), RunTool(1, CAT)]
    both.apply(ToolOutputRecorded("c2", "read_file", "text"))
    assert both.due() == [RunTool(0, LS)]
    both.apply(ToolOutputRecorded("c1", "terminal", "boom", ok=False))
    assert both.due() == [CallModel()]
    assert both.messages[-1] == Message("tool", (ToolResult("c1", "boom", False), ToolResult("c2", "text")))


def test_a_turn_that_is_stopped_says_what_did_and_did_not_happen() -> None:
    begun = turn(MessageChunk("Looking."), MessageRecorded(BOTH, "tools"), ToolCallChunk("terminal", index=0))
    assert begun.last_words() == [
        ToolOutputRecorded("c1", "terminal", INTERRUPTED, ok=False),
        ToolCallFinished("terminal", ok=False, index=0),
        ToolOutputRecorded("c2", "read_file", NEVER_RAN, ok=False),
    ]
    assert turn(MessageChunk("Hel")).last_words() == [MessageRecorded(assistant("Hel"), "stopped")]
    assert turn(*answer("Hello")).last_words() == []


@pytest.mark.parametrize(
    ("stop", "why"), [("length", "token limit"), ("filter", "content filter"), ("cut", "broke off")]
)
def test_an_answer_that_did_not_come_to_its_end_is_incomplete_and_says_why(stop: str, why: str) -> None:
    (finish,) = turn(*answer("Hel", stop)).due()
    assert isinstance(finish, Finish)
    assert finish.status == "incomplete"
    assert why in finish.reason


def test_I106_a_tool_that_was_running_is_settled_not_simply_run() -> None:
    assert turn(MessageRecorded(BOTH, "tools"), ToolCallChunk("terminal", index=0)).due() == [
        SettleTool(0, LS),
        RunTool(1, CAT),
    ]


def test_I106_an_approval_given_before_a_crash_still_holds() -> None:
    asked = ApprovalAsked("a1", "terminal", "ls", "digest", call_id="c1")
    answered = ApprovalAnswered("a1", "once")
    approved = turn(MessageRecorded(BOTH, "tools"), asked, answered)
    assert approved.due() == [RunTool(0, LS, asked, answered), RunTool(1, CAT)]


def test_a_tool_line_that_viewers_still_see_running_is_known() -> None:
    facts = (MessageRecorded(BOTH, "tools"), ToolCallChunk("terminal", index=0), ToolOutputRecorded("c1", "", "x"))
    assert turn(*facts).unsettled() == [ToolCallFinished("terminal", 0.0, True, 0)]
    assert turn(*facts, ToolCallFinished("terminal", index=0)).unsettled() == []


def test_the_askers_own_tools_are_handed_back_after_ours_ran() -> None:
    mixed = turn(MessageChunk("Looking."), MessageRecorded(BOTH, "tools"), foreign=("read_file",))
    assert mixed.due() == [RunTool(0, LS)]
    mixed.apply(ToolOutputRecorded("c1", "terminal", "ok"))
    assert mixed.due() == [Finish("completed", "Looking.", calls=(CAT,))]


def test_budgets_end_the_turn_with_a_reason() -> None:
    facts = (MessageRecorded(BOTH, "tools"), ToolOutputRecorded("c1", "", ""), ToolOutputRecorded("c2", "", ""))
    assert turn(*facts, limits=TurnLimits(max_calls=1)).due() == [
        GiveUp("stopped after 1 model call (agent.max_turns)")
    ]
    spent = UsageRecorded(Usage(input_tokens=90, output_tokens=10))
    assert turn(*facts, spent, limits=TurnLimits(max_tokens=100)).due() == [
        GiveUp("stopped after 100 tokens (agent.max_tokens)")
    ]


def test_B38_C46_an_answer_that_was_cut_or_empty_is_incomplete() -> None:
    for stop in ("cut", "length", "limit"):
        (finish,) = turn(*answer("Hel", stop)).due()
        assert isinstance(finish, Finish)
        assert (finish.status, finish.output) == ("incomplete", "Hel")
    assert turn(MessageRecorded(assistant(""), "end")).due() == [Finish("incomplete", "", "the model gave no answer")]


def test_a_stopped_turn_says_so() -> None:
    assert turn(*answer("Hel", "stopped")).due() == [Finish("stopped", "Hel", "interrupted")]


def test_the_output_is_what_was_shown_since_the_last_tool_boundary() -> None:
    facts = (MessageChunk("Looking."), MessageRecorded(BOTH, "tools"), MessageStop())
    done = turn(*facts, ToolOutputRecorded("c1", "", ""), ToolOutputRecorded("c2", "", ""), *answer("Found it."))
    assert done.due() == [Finish("completed", "Found it.")]


def test_the_final_stop_is_known() -> None:
    assert not turn(MessageStop()).stopped
    assert turn(MessageStop(final=True)).stopped


def test_a_compressed_history_replaces_what_came_before() -> None:
    tools = turn(MessageRecorded(BOTH, "tools"), *(ToolOutputRecorded(c.id, c.name, "x") for c in (LS, CAT)))
    whole = tools.messages
    tools.apply(HistoryCompressed(whole))
    assert tools.messages == whole  # results that the model has not seen yet are in it, once
    assert tools.due() == [CallModel()]
    compressed = turn(HistoryCompressed((user("summary"),)))
    assert compressed.messages == (user("summary"),)
    assert compressed.due() == [CallModel()]
