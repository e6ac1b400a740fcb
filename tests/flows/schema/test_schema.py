"""The schema of an answer: whole values by every keyword, and half values without ever being wrong."""

from __future__ import annotations

import json
import re
import socket
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from properties import examples
from tailrace.flows.schema.extract import read_answer
from tailrace.flows.schema.incremental import PartialAnswer
from tailrace.flows.schema.schema import Schema, SchemaError

CITY = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "kind": {"enum": ["city", "village"]},
        "people": {"type": "integer", "minimum": 0},
        "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"}, "maxItems": 2},
        "place": {"$ref": "#/$defs/place"},
    },
    "required": ["name", "kind"],
    "additionalProperties": False,
    "$defs": {"place": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]}},
}
GOOD = '{"name": "Z\\u00fcrich", "kind": "city", "people": 4e5, "tags": ["lake"], "place": {"lat": 47.4, "x": [{}]}}'


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "integer"}, [1, -3, 2.0], [1.5, True, "1", None]),
        ({"type": ["string", "null"]}, ["", None], [0, []]),
        ({"enum": [1, "a", None]}, [1.0, "a", None], [True, "b", 2]),
        ({"const": {"a": [1]}}, [{"a": [1]}], [{"a": [2]}, {}]),
        ({"minimum": 1, "exclusiveMaximum": 3}, [1, 2.9, "text"], [0.9, 3]),
        ({"maximum": 3, "exclusiveMinimum": 1}, [1.1, 3], [1, 3.1]),
        ({"multipleOf": 0.1}, [0.3, 1], [0.35]),
        ({"minLength": 2, "maxLength": 3, "pattern": "b"}, ["ab", "abc"], ["a", "abcd", "ac"]),
        ({"minItems": 1, "maxItems": 2, "uniqueItems": True}, [[1], [1, 2]], [[], [1, 2, 3], [1, 1.0]]),
        ({"prefixItems": [{"type": "string"}], "items": {"type": "number"}}, [["a", 1]], [[1], ["a", "b"]]),
        ({"contains": {"const": 1}}, [[0, 1]], [[], [0]]),
        ({"required": ["a"], "minProperties": 2, "maxProperties": 2}, [{"a": 1, "b": 2}], [{"b": 1, "c": 2}, {"a": 1}]),
        ({"patternProperties": {"^n_": {"type": "number"}}, "additionalProperties": False}, [{"n_a": 1}], [{"b": 1}]),
        ({"additionalProperties": {"type": "number"}, "properties": {"a": True}}, [{"a": "x", "b": 1}], [{"b": "x"}]),
        ({"propertyNames": {"pattern": "^[a-z]$"}}, [{"a": 1}], [{"ab": 1}]),
        ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, [1, 2], [0, 3]),
        ({"anyOf": [{"type": "string"}, {"minimum": 5}]}, ["a", 6], [1]),
        ({"oneOf": [{"minimum": 1}, {"maximum": 5, "type": "number"}]}, [0, 6], [3]),
        ({"not": {"type": "string"}}, [1], ["a"]),
        ({"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"minimum": 2}}, ["ab", 2], ["a", 1]),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "number"}}}, [1], ["a"]),
        (
            CITY,
            [json.loads(GOOD)],
            [{"name": "x"}, {"name": "", "kind": "city"}, {"name": "x", "kind": "city", "y": 1}],
        ),
    ],
)
def test_every_keyword_says_yes_and_no(schema: dict[str, Any], good: list[Any], bad: list[Any]) -> None:
    read = Schema(schema)
    for value in good:
        assert read.errors(value) == [], value
    for value in bad:
        assert read.errors(value), value


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ([], "object"),
        ({"type": "text"}, '#/type: "text" is not valid'),
        ({"properties": {"a": {"requird": ["x"]}}}, "#/properties/a: 'requird' is not supported"),
        ({"$ref": "#/$defs/no"}, "leads nowhere"),
        ({"$ref": "https://example.com/s"}, "within the schema"),
        ({"$ref": "#"}, "refers to itself"),
        ({"$ref": "other.json"}, "within the schema"),
        ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "refers to itself"),
        ({"pattern": "("}, '#/pattern: "(" is not a "regex"'),
        ({"pattern": "(?=a)b"}, "without lookaround"),
        ({"minimum": "1"}, '#/minimum: "1" is not of type "number"'),
        ({"enum": "a"}, '#/enum: "a" is not of type "array"'),
        ({"allOf": {}}, '#/allOf: {} is not of type "array"'),
        ({"properties": {"a": 1}}, "#/properties/a: a schema is an object"),
    ],
)
def test_a_schema_that_cannot_be_checked_is_refused(schema: Any, word: str) -> None:
    with pytest.raises(SchemaError, match=re.escape(word)) as raised:
        Schema(schema)
    assert "\n" not in str(raised.value)


def test_a_schema_may_contain_itself_where_something_is_in_between() -> None:
    tree = Schema({"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False})
    assert tree.errors({"next": {"next": {}}}) == []
    assert tree.errors({"next": {"next": {"x": 1}}}) == [
        "/next/next: Additional properties are not allowed ('x' was unexpected)"
    ]


def test_an_error_names_the_place_the_reason_and_the_value() -> None:
    assert Schema(CITY).errors({"name": 5, "kind": "x" * 500, "tags": ["a", "B"]}) == [
        '/name: 5 is not of type "string"',
        '/kind: "' + "x" * 99 + '… is not one of "city" or "village"',
        '/tags/1: "B" does not match "^[a-z]+$"',
    ]


def test_no_reference_is_ever_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_args: object) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr("socket.socket.connect", connect)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.05)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/schema"
    with pytest.raises(SchemaError, match="within the schema"):
        Schema({"$ref": url})
    assert Schema({"$id": url, "$schema": url, "type": "string"}).errors("x") == []
    with pytest.raises(TimeoutError):
        listener.accept()
    listener.close()


def test_L140_whole_values_are_checked_in_linear_time() -> None:
    """Each of these would take hours otherwise."""
    text = "a" * 100_000 + "!"
    assert Schema({"pattern": "^(a+)+$"}).errors(text)
    assert Schema({"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}).errors({text: 1})
    assert PartialAnswer(Schema({"type": "object", "patternProperties": {"^(a+)+$": {}}})).feed(f'{{"{text}": 1') == ""
    assert Schema({"uniqueItems": True}).errors([[number] for number in range(50_000)]) == []
    doubled: dict[str, Any] = {"s0": {"type": "object"}}
    for level in range(1, 40):
        doubled[f"s{level}"] = {"allOf": [{"$ref": f"#/$defs/s{level - 1}"}, {"$ref": f"#/$defs/s{level - 1}"}]}
    with pytest.raises(SchemaError, match="more than 20000 parts"):
        Schema({"$ref": "#/$defs/s39", "$defs": doubled})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"name": "a", "kind": "city"}', {"name": "a", "kind": "city"}),
        ('Sure:\n```json\n{"name": "a}", "kind": "city"}\n```\nHope that helps {}', {"name": "a}", "kind": "city"}),
    ],
)
def test_words_and_fences_around_an_object_are_not_part_of_it(text: str, value: object) -> None:
    assert read_answer(text, Schema(CITY)) == (value, [])


def test_where_a_text_would_do_the_whole_answer_counts() -> None:
    assert read_answer(' "yes" ', Schema({"enum": ["yes", "no"]})) == ("yes", [])
    assert read_answer('"yes" indeed', Schema({"enum": ["yes", "no"]}))[1] == ["there is more than JSON in the answer"]


def rejected_at(schema: dict[str, Any], text: str) -> tuple[int | None, str]:
    """After how many characters the beginning was given up, and why."""
    partial = PartialAnswer(Schema(schema))
    for count, char in enumerate(text, 1):
        if problem := partial.feed(char):
            return count, problem
    return None, ""


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("[", "["),
        ('{"nam": "x"}', '{"nam"'),
        ('{"name": 5}', '{"name": 5'),
        ('{"name": ""}', '{"name": ""'),
        ('{"name": "a very long name"}', '{"name": "a very long name"'),
        ('{"kind": "villain"}', '{"kind": "villain"'),
        ('{"people": -1}', '{"people": -1}'),
        ('{"tags": ["a", "b", "c"]}', '{"tags": ["a", "b", "'),
        ('{"tags": ["A"]}', '{"tags": ["A"'),
        ('{"place": {}}', '{"place": {}'),
        ('{"name": "a", "name": "b"}', '{"name": "a", "name"'),
        ('{"name": tru', '{"name": t'),
        ('{"name" "a"', '{"name" "'),
        ('{"name": "a" "b"', '{"name": "a" "'),
        ('{"name": "\\x"', '{"name": "\\x"'),
        ('{"people": 01}', '{"people": 01}'),
        ('{"name": "a"}', '{"name": "a"}'),
    ],
)
def test_it_is_given_up_with_the_value_that_decides(text: str, until: str) -> None:
    count, problem = rejected_at(CITY, text)
    assert problem
    assert text[:count] == until


def test_a_good_answer_is_never_given_up_and_a_whole_one_is_valid() -> None:
    text = f"Here it is: {GOOD} and more {{"
    assert rejected_at(CITY, text) == (None, "")
    partial = PartialAnswer(Schema(CITY))
    partial.feed(text)
    assert partial.close() == (json.loads(GOOD), [])


SCALARS = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, 1e3]) | st.text('ab"\\é😀', max_size=4)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
)
LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.just(True),
    st.just({}),
    st.builds(
        lambda names: {"type": names}, st.lists(st.sampled_from(["string", "integer", "null", "array"]), min_size=1)
    ),
    st.builds(lambda values: {"enum": values}, st.lists(SCALARS, min_size=1, max_size=3)),
    st.builds(lambda value: {"const": value}, VALUES),
    st.builds(lambda a, b: {"minimum": a, "maximum": b, "maxLength": b + 3}, st.integers(-3, 0), st.integers(0, 3)),
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda a, b: {"allOf": [a, b]}, inner, inner),
        st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner),
        st.builds(lambda a: {"not": a}, inner),
        st.builds(lambda a, n: {"items": a, "maxItems": n}, inner, st.integers(0, 3)),
        st.builds(lambda a, b: {"prefixItems": [a], "items": b}, inner, inner),
        st.builds(
            lambda a, b, more, need: {"properties": {"a": a, "b": b}, "additionalProperties": more, "required": need},
            inner,
            inner,
            st.booleans() | inner,
            st.lists(st.sampled_from("abc"), max_size=2),
        ),
    ),
    max_leaves=6,
).filter(lambda schema: isinstance(schema, dict))


@settings(max_examples=examples(400))
@given(SCHEMAS, VALUES, st.booleans())
@example({"enum": ["😀"]}, "😀", True)
def test_no_beginning_of_a_valid_answer_is_ever_given_up(schema: dict[str, Any], value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    read = Schema(schema)
    if not read.errors(value):
        assert rejected_at(schema, text + "\n") == (None, "")
    partial = PartialAnswer(read)
    partial.feed(text + "\n")
    if partial.problem:
        assert read_answer(text, read)[1]


@given(SCHEMAS, VALUES, st.lists(st.integers(0, 60), max_size=6))
def test_any_split_gives_the_same_verdict(schema: dict[str, Any], value: Any, cuts: list[int]) -> None:
    text = json.dumps(value) + " "
    whole, pieces = PartialAnswer(Schema(schema)), PartialAnswer(Schema(schema))
    whole.feed(text)
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    for start, end in pairwise(edges):
        pieces.feed(text[start:end])
    assert bool(whole.problem) == bool(pieces.problem)
    assert whole.close() == pieces.close()


@given(st.text('{}[]",:0123.eE+-truefalsn \\u', max_size=25))
def test_no_text_breaks_the_reader_and_what_it_rejects_is_invalid(text: str) -> None:
    schema = Schema({"type": ["object", "array", "string", "number", "boolean", "null"]})
    partial = PartialAnswer(schema)
    partial.feed(text)
    if partial.problem:
        assert partial.close()[1]


@pytest.mark.parametrize(
    ("schema", "opening", "unit"),
    [
        ({}, '"', "a"),
        ({"type": "string", "maxLength": 10**9}, '"', "\\ud83d\\ude00"),
        ({}, '{"', "a"),
        ({"items": {"type": "integer"}}, "[", "1, "),
        ({"enum": ["x" * 10, "y"]}, '"', "x"),
    ],
)
def test_L140_half_a_value_is_read_in_linear_time(schema: dict[str, Any], opening: str, unit: str) -> None:
    def cost(length: int) -> int:
        """Characters that were copied or compared: what each call is given and holds, by the allocator's count."""
        partial = PartialAnswer(Schema(schema))
        partial.feed(opening)
        tracemalloc.start()
        copied = 0
        for _ in range(length):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            partial.feed(unit)
            copied += tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
        return copied

    assert cost(2000) < 3 * cost(1000)


def test_L140_a_number_has_an_end() -> None:
    digits = "1" * 401
    assert rejected_at({}, digits) == (401, "a number of more than 400 characters")
    assert read_answer(digits, Schema({}))[1] == ["not valid JSON: a number of more than 400 characters"]
    assert rejected_at({}, "0." + "1" * 398 + " ") == (None, "")
