from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.agent.context import (
    LOST_RESULT,
    SUMMARY_HEADING,
    repaired,
    split_for_summary,
    with_shorter_results,
    with_summary,
)
from tailrace.messages import Message, Text, ToolCall, ToolResult, assistant, user
from tailrace.wire.peer_json import without_lone_surrogates
from tailrace.wire.token_estimate import message_tokens


def calls(*ids: str) -> Message:
    return Message("assistant", tuple(ToolCall(i, "t") for i in ids))


def results(*ids: str) -> Message:
    return Message("tool", tuple(ToolResult(i, f"r{i}") for i in ids))


def test_B39_a_call_without_a_result_gets_one_that_says_so() -> None:
    history = (user("go"), calls("a", "b"), results("b"), user("and?"))
    assert repaired(history) == (
        user("go"),
        calls("a", "b"),
        Message("tool", (ToolResult("a", LOST_RESULT, False), ToolResult("b", "rb"))),
        user("and?"),
    )


def test_B39_a_result_without_a_call_is_dropped() -> None:
    assert repaired((user("go"), results("x"), assistant("hi"), results("y"))) == (user("go"), assistant("hi"))


def test_B39_ids_that_a_provider_uses_again_keep_their_own_results() -> None:
    second = Message("tool", (ToolResult("call_0", "two"),))
    first = Message("tool", (ToolResult("call_0", "one"),))
    history = (user("go"), calls("call_0"), first, calls("call_0"), second)
    assert repaired(history) == history


def test_B39_results_move_up_to_their_call() -> None:
    assert repaired((calls("a"), user("hurry"), results("a"))) == (calls("a"), results("a"), user("hurry"))


def test_B34_arguments_that_are_no_object_are_not_sent_again() -> None:
    broken = Message("assistant", (ToolCall("a", "t", '{"path": "/et'),))
    (sent, _) = repaired((broken,))
    assert sent.tool_calls == (ToolCall("a", "t", "{}"),)


def test_A18_lone_surrogates_never_leave() -> None:
    assert without_lone_surrogates("a\ud800b 🐢") == "a\ufffdb 🐢"
    assert repaired((user("x\udfff"), assistant("")))[0] == user("x\ufffd")
    assert len(repaired((user("x"), assistant("")))) == 1


def test_compression_cuts_before_a_question_and_keeps_the_latest() -> None:
    history = (user("one" * 400), calls("a"), results("a"), assistant("done"), user("two"), calls("b"), results("b"))
    older, kept = split_for_summary(history, keep_tokens=100)
    assert (older, kept) == (history[:4], history[4:])
    shorter = with_summary(" what happened ", kept)
    assert shorter[0] == Message("user", (Text(SUMMARY_HEADING + "what happened\n\n"), Text("two")))
    assert message_tokens(shorter) < message_tokens(history)


def test_questions_that_nobody_answered_are_not_lost() -> None:
    history = (user("a" * 4000), assistant("b"), user("stopped"), user("again"), assistant("c"))
    assert split_for_summary(history, keep_tokens=100) == (history[:2], history[2:])


def test_the_newest_question_stays_however_long_it_is() -> None:
    history = (user("a"), assistant("b"), user("c" * 9000), calls("x"), results("x"))
    assert split_for_summary(history, keep_tokens=10) == (history[:2], history[2:])


def test_nothing_to_compress_in_one_turn() -> None:
    history = (user("a"), calls("x"), results("x"))
    assert split_for_summary(history, keep_tokens=0) == ((), history)


def test_the_older_steps_of_a_long_turn_are_summarised_and_its_question_stays() -> None:
    steps = [message for name in "abcd" for message in (calls(name), Message("tool", (ToolResult(name, "r" * 400),)))]
    history = (user("old"), assistant("answer"), user("go"), *steps)
    older, kept = split_for_summary(history, keep_tokens=250)
    assert older == (*history[:3], *steps[:4])
    assert kept == (user("go"), *steps[4:])
    again = with_summary("all of it", (*with_summary("a and b", kept),))
    assert again[0] == Message("user", (Text(SUMMARY_HEADING + "all of it\n\n"), Text("go")))
    older, kept = split_for_summary(history, keep_tokens=0)
    assert kept == (user("go"), *steps[6:])  # the newest step stays however long it is


PIECES = [user("u"), assistant("a"), calls("1"), calls("1", "2"), results("1"), results("2"), results("1", "2")]


@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_B39_any_history_comes_out_paired(history: list[Message]) -> None:
    out = repaired(history)
    for at, message in enumerate(out):
        if message.tool_calls:
            answered = [p.call_id for p in out[at + 1].parts if isinstance(p, ToolResult)]
            assert answered == [call.id for call in message.tool_calls]
        if message.role == "tool":
            assert out[at - 1].tool_calls
    assert repaired(out) == out


@pytest.mark.parametrize(
    ("lengths", "kept"),
    [
        ([40_000], [4000]),
        ([40_000, 10_000], [2000, 2000]),
        ([40_000, *[10] * 99], [3010, *[10] * 99]),  # a long one has what the short ones leave
        ([1900, 2000], [1900, 2000]),
        ([], []),
        ([40_000] * 100, [500] * 100),
    ],
)
def test_long_results_lose_their_middle_and_short_ones_nothing(lengths: list[int], kept: list[int]) -> None:
    messages = [Message("tool", (ToolResult("c", "·" * length),)) for length in lengths]
    shorter = with_shorter_results(messages, keep_tokens=1000)
    texts = [part.text for message in shorter for part in message.parts if isinstance(part, ToolResult)]
    assert [text.count("·") for text in texts] == kept
