"""What a run was asked, as every list tells it."""

from __future__ import annotations

import pytest

from tailrace.app.timeline.question import question_of
from tailrace.app.timeline.run_summary import title_of
from tailrace.messages import JsonObject
from tailrace.ports import NewRun, Run

MESSAGE: JsonObject = {"role": "user", "parts": [{"type": "text", "text": "Sum up\n\n<file>\n" + "x" * 9000}]}


def asked(given: JsonObject, kind: str = "agent") -> Run:
    return Run("run_1", NewRun(kind, given), "running", last_seq=1, first_seq=1, created_at=0.0, claims=1)


def test_a_question_is_told_as_its_user_typed_it() -> None:
    run = asked({"message": MESSAGE, "shown": "Sum up @notes.md"})
    assert (question_of(run), title_of(run)) == ("Sum up @notes.md", "Sum up @notes.md")
    assert question_of(asked({"message": MESSAGE})).startswith("Sum up\n\n<file>")


def test_what_a_client_asks_and_the_name_of_a_sequence() -> None:
    said = [{"role": "user", "content": "first"}, {"role": "assistant", "content": "no"}]
    assert question_of(asked({"body": {"messages": said}}, "call")) == "first"
    assert question_of(asked({"body": {"input": "whole"}}, "call")) == "whole"
    assert question_of(asked({"definition": {"name": "greet"}}, "sequence")) == "greet"
    assert question_of(asked({})) == ""


def test_of_a_client_s_request_the_user_s_own_words_are_told() -> None:
    notes = [
        {"type": "text", "text": "<system-reminder>\nToday is Monday.\n</system-reminder>\n"},
        {"type": "text", "text": "<command-name>/model</command-name>\n<command-args>x</command-args>"},
    ]
    typed = {"role": "user", "content": [*notes, {"type": "text", "text": "Is <b> a tag?"}]}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "yes"}, notes[0]]}
    for said in (
        [typed],
        [typed, {"role": "assistant", "content": "I look."}, result, {"role": "system", "content": "x"}],
    ):
        assert question_of(asked({"request": {"messages": said}}, "call")) == "Is <b> a tag?"
    assert question_of(asked({"request": {"messages": [result]}}, "call")) == ""


@pytest.mark.parametrize("kind", ["image", "document", "image_url", "input_audio", "file", "input_image", "input_file"])
def test_of_a_message_that_is_an_image_or_a_file_no_earlier_question_is_told(kind: str) -> None:
    said = [{"role": "user", "content": "How high?"}, {"role": "assistant", "content": "Two metres."}]
    for before, told in (([], ""), ([{"type": "tool_result", "content": "yes"}], "How high?")):
        shown = {"role": "user", "content": [*before, {"type": kind}]}
        assert question_of(asked({"body": {"messages": [*said, shown]}}, "call")) == told


def test_durable_model_calls_are_told_apart_by_what_they_ask() -> None:
    call: JsonObject = {"definition": {"name": "llm_call"}}
    assert question_of(asked({**call, "input": {"prompt": "Name a river."}}, "sequence")) == "llm_call: Name a river."
    said = {"messages": [{"role": "user", "content": "Name a lake."}]}
    assert question_of(asked({**call, "input": said}, "sequence")) == "llm_call: Name a lake."
    assert question_of(asked(call, "sequence")) == "llm_call"
