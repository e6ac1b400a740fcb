"""Which call a piece belongs to, whatever a server leaves out."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.config.quirks import WireQuirks
from tailrace.messages import FinishDelta, ToolCallDelta
from tailrace.wire.chat.tool_calls import ObjectEnd
from wire.chat.chat_streams import DONE, Said, calls, chunk, decoded, piece


def answered(*chunks: bytes, finish: str = "tool_calls", quirks: WireQuirks | None = None) -> Said:
    said = decoded(b"".join(chunks) + chunk(finish=finish) + DONE, quirks or WireQuirks())
    assert said.complete
    streamed = [(name, arguments or "{}") for _, name, arguments in said.streamed_calls]
    assert streamed == [(name, arguments) for _, name, arguments in said.calls]
    return said


def test_as_documented() -> None:
    said = answered(
        calls(piece("", name="f", index=0, id="a", type="function")),
        calls(piece('{"x"', index=0)),
        calls(piece(":1}", index=0)),
        calls(piece("", name="g", index=1, id="b", type="function")),
        calls(piece("{}", index=1)),
    )
    assert said.calls == [("a", "f", '{"x":1}'), ("b", "g", "{}")]
    assert said.body["choices"][0]["message"]["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
        {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]


def test_indices_need_not_begin_at_zero_nor_be_in_order() -> None:
    said = answered(
        calls(piece("{", name="f", index=7, id="a")),
        calls(piece("{}", name="g", index=3, id="b")),
        calls(piece("}", index=7)),
    )
    assert said.calls == [("a", "f", "{}"), ("b", "g", "{}")]
    assert [d.index for d in said.deltas if isinstance(d, ToolCallDelta)] == [0, 1, 0]


def test_B23_without_an_index_the_id_says_which() -> None:
    said = answered(
        calls(piece('{"x":', name="f", id="a")),
        calls(piece("[", name="g", id="b")),
        calls(piece("1}", id="a")),
        calls(piece("]", id="b")),
    )
    assert said.calls == [("a", "f", '{"x":1}'), ("b", "g", "[]")]


def test_B23_without_index_and_id_a_piece_goes_on_with_the_last_call() -> None:
    said = answered(
        calls(piece("", name="f", id="a")),
        calls(piece("{}")),
        calls(piece("", name="g", id="b")),
        calls(piece('{"y"')),
        calls(piece(":2}")),
    )
    assert said.calls == [("a", "f", "{}"), ("b", "g", '{"y":2}')]


def test_B23_several_pieces_without_index_and_id_go_by_position() -> None:
    said = answered(calls(piece('{"x":', name="f"), piece('{"y":', name="g")), calls(piece("1}"), piece("2}")))
    assert [call[1:] for call in said.calls] == [("f", '{"x":1}'), ("g", '{"y":2}')]


def test_B23_whole_calls_chunk_by_chunk_without_index_and_id() -> None:
    said = answered(
        calls(piece({"x": 1}, name="f")),
        calls(piece({"x": 2}, name="f")),
        calls(piece("", name="g")),
        calls(piece("", name="h")),
    )
    assert [call[1:] for call in said.calls] == [("f", '{"x":1}'), ("f", '{"x":2}'), ("g", "{}"), ("h", "{}")]
    assert len({call[0] for call in said.calls}) == 4, "a result must be able to name its call"


def test_B24_all_calls_at_index_0_a_new_id_is_a_new_call() -> None:
    said = answered(
        calls(piece("", name="f", index=0, id="a")),
        calls(piece("{}", index=0)),
        calls(piece("", name="f", index=0, id="b")),
        calls(piece('{"z"', index=0)),
        calls(piece(":0}", index=0)),
        calls(piece("", index=0, id="a")),
    )
    assert said.calls == [("a", "f", "{}"), ("b", "f", '{"z":0}')]


@pytest.mark.parametrize("named", [True, False])
def test_B25_no_ids_one_index_a_new_object_is_a_new_call(named: bool) -> None:
    again = {"name": "f"} if named else {}
    said = answered(
        calls(piece('{"x":"}{"', name="f", index=0)),
        calls(piece(', "y":{}}', index=0)),
        calls(piece('{"x":2}', index=0, **again)),
        calls(piece('{"x"', index=0, **again)),
        calls(piece(":3}\n", index=0)),
    )
    assert [call[1:] for call in said.calls] == [
        ("f", '{"x":"}{", "y":{}}'), ("f", '{"x":2}'), ("f", '{"x":3}\n'),
    ]  # fmt: skip


@given(st.lists(st.integers(0, 60), max_size=8))
def test_B25_objects_are_told_apart_wherever_the_pieces_are_cut(cuts: list[int]) -> None:
    text = '{"a":"\\"}{"}{"b":[{}]} {"c":"\\\\"}'
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(edges)]
    said = answered(calls(piece("", name="f", index=0)), *(calls(piece(p, index=0)) for p in pieces))
    assert [json.loads(call[2]) for call in said.calls] == [{"a": '"}{'}, {"b": [{}]}, {"c": "\\"}]


def test_B25_very_many_objects_in_one_piece_take_linear_time() -> None:
    many = 100_000
    said = decoded(calls(piece("{}" * many, name="f", index=0)) + DONE)
    assert len(said.calls) == many


def test_B25_with_an_id_two_objects_stay_one_call_that_is_never_run() -> None:
    said = answered(calls(piece("{}", name="f", index=0, id="a")), calls(piece("{}", index=0)))
    assert said.calls == [("a", "f", "{}{}")]
    assert said.completion.tool_calls[0].parsed() is None


def test_B26_the_same_index_twice_in_one_chunk_is_one_call() -> None:
    said = answered(calls(piece("", name="f", index=0, id="a"), piece('{"x"', index=0)), calls(piece(":1}", index=0)))
    assert said.calls == [("a", "f", '{"x":1}')]


@pytest.mark.parametrize("with_id", [True, False])
def test_B27_B29_name_and_id_with_every_piece_are_assigned(with_id: bool) -> None:
    fields = {"id": "a"} if with_id else {}
    said = answered(
        *(calls(piece(p, name="get_weather", index=0, **fields)) for p in ("", '{"ci', 'ty":"', 'Łódź"}', ""))
    )
    assert [call[1:] for call in said.calls] == [("get_weather", '{"city":"Łódź"}')]
    assert [d.name for d in said.deltas if isinstance(d, ToolCallDelta)] == ["get_weather", "", "", ""]
    if with_id:
        assert said.calls[0][0] == "a"


def test_B27_the_name_resent_after_the_object_is_no_new_call() -> None:
    said = answered(
        calls(piece("{}", name="f", index=0, id="a")),
        calls(piece("", name="f", index=0)),
        calls(piece(None, name="f", index=0)),
    )
    assert said.calls == [("a", "f", "{}")]


def test_B28_a_name_in_pieces_only_behind_the_quirk() -> None:
    chunks = [
        calls(piece(name="get_", index=0, id="a")),
        calls(piece(name="weather", index=0)),
        calls(piece("{}", index=0)),
    ]
    assert answered(*chunks, quirks=WireQuirks(name_in_pieces=True)).calls == [("a", "get_weather", "{}")]
    assert decoded(b"".join(chunks) + DONE).calls == [("a", "weather", "{}")]


def test_B28_a_call_without_arguments_is_announced_at_the_end() -> None:
    said = answered(
        calls(piece(name="no", index=0, id="a")),
        calls(piece(name="op", index=0)),
        quirks=WireQuirks(name_in_pieces=True),
    )
    assert said.deltas == [ToolCallDelta(0, "a", "noop"), FinishDelta("tool_calls")]


def test_B30_arguments_before_the_name_are_held() -> None:
    said = answered(
        calls(piece('{"x"', index=0, id="a")), calls(piece(":1", index=0)), calls(piece("}", name="f", index=0))
    )
    assert said.calls == [("a", "f", '{"x":1}')]
    assert said.deltas == [ToolCallDelta(0, "a", "f", '{"x":1}'), FinishDelta("tool_calls")]


def test_B30_an_id_after_the_name_is_told_when_it_comes() -> None:
    said = answered(calls(piece("{", name="f", index=0)), calls(piece("}", index=0, id="a")))
    assert said.calls == [("a", "f", "{}")]
    assert said.streamed_calls == [("a", "f", "{}")]


def test_a_call_that_never_got_a_name_is_in_the_body_alone() -> None:
    said = decoded(calls(piece("{}", index=0, id="a")) + chunk(finish="tool_calls") + DONE)
    assert said.calls == said.streamed_calls == []
    assert said.body["choices"][0]["message"]["tool_calls"][0]["id"] == "a"
    assert said.completion.stop == "end"


def test_B31_arguments_as_an_object_become_json_text() -> None:
    said = answered(calls(piece({"b": [1, None], "a": "ż"}, name="f", index=0, id="a")))
    assert said.calls == [("a", "f", '{"b":[1,null],"a":"ż"}')]


@pytest.mark.parametrize("nothing", ["", None, "  "])
def test_B32_no_arguments_are_an_empty_object(nothing: str | None) -> None:
    said = decoded(calls(piece(nothing, name="f", index=0, id="a")) + chunk(finish="tool_calls") + DONE)
    assert said.calls == [("a", "f", "{}")]
    assert said.completion.tool_calls[0].parsed() == {}


@pytest.mark.parametrize("finish", ["length", "tool_calls"])
def test_B34_B35_arguments_cut_off_are_kept_as_they_are_and_cannot_be_parsed(finish: str) -> None:
    said = answered(calls(piece('{"path": "/etc', name="rm", index=0, id="a")), finish=finish)
    assert said.calls == [("a", "rm", '{"path": "/etc')]
    assert said.completion.tool_calls[0].parsed() is None
    assert said.completion.stop == ("length" if finish == "length" else "tools")


@pytest.mark.parametrize(
    "reasons", [["stop"], ["tool_calls", "stop"], ["stop", "tool_calls"], ["tool_calls", "tool_calls"]]
)
def test_B36_calls_win_over_stop(reasons: list[str]) -> None:
    raw = calls(piece("{}", name="f", index=0, id="a")) + b"".join(chunk(finish=reason) for reason in reasons) + DONE
    completion = decoded(raw).completion
    assert completion.stop == "tools"
    assert completion.finish_reason == ("tool_calls" if "tool_calls" in reasons else "stop")


def test_B37_a_call_written_as_text_is_text() -> None:
    text = '<tool_call>{"name": "rm", "arguments": {}}</tool_call>'
    said = decoded(chunk({"content": text}) + chunk(finish="stop") + DONE)
    assert (said.text, said.calls, said.completion.stop) == (text, [], "end")


def test_fields_of_a_call_that_only_its_server_knows_are_kept() -> None:
    extra = {"google": {"thought_signature": "c2ln"}}
    said = answered(calls({**piece("{}", name="f", index=0, id="a"), "extra_content": extra}))
    assert said.body["choices"][0]["message"]["tool_calls"][0]["extra_content"] == extra


def test_custom_tools_keep_their_input() -> None:
    raw = calls({"index": 0, "id": "a", "type": "custom", "custom": {"name": "sh", "input": "ls"}}) + calls(
        {"index": 0, "custom": {"input": " -l"}}
    )
    said = decoded(raw + DONE)
    assert said.body["choices"][0]["message"]["tool_calls"] == [
        {"id": "a", "type": "custom", "custom": {"name": "sh", "input": "ls -l"}}
    ]
    assert said.streamed_calls == [("a", "sh", "ls -l")]


def test_the_predecessor_of_tool_calls() -> None:
    said = answered(
        chunk({"function_call": {"name": "f", "arguments": ""}}), chunk({"function_call": {"arguments": '{"x"'}}),
        chunk({"function_call": {"arguments": ":1}"}}), finish="function_call",
    )  # fmt: skip
    assert said.body["choices"][0]["message"]["function_call"] == {"name": "f", "arguments": '{"x":1}'}
    assert [call[1:] for call in said.calls] == [("f", '{"x":1}')]
    assert said.completion.stop == "tools"


strings = st.text('ab"\\{}[] ż', max_size=6)
json_objects = st.dictionaries(strings, strings | st.integers() | st.lists(strings, max_size=2), max_size=4)


@given(value=json_objects, cuts=st.lists(st.integers(0, 200), max_size=6), rest=st.text(max_size=5))
def test_the_end_of_an_object_is_found_wherever_it_is_cut(value: object, cuts: list[int], rest: str) -> None:
    whole = json.dumps(value)
    text = whole + rest
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    end, scanner = -1, ObjectEnd()
    for a, b in itertools.pairwise(edges):
        found = scanner.find(text[a:b])
        if found >= 0:
            end = a + found
            break
    assert end == len(whole)
