"""Conditions and templates: every operator, types kept, and what is not there."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.flows.language.expressions import (
    ExpressionError,
    equal_values,
    evaluate,
    parse_condition,
    parse_expression,
)
from tailrace.flows.language.templates import expressions_in, has_template, resolved

INPUT = {"name": "Ada", "n": 3, "ok": True, "none": None, "list": [1, {"deep": "x"}], "odd key": 7, "0": "zero"}


class Names(dict[str, Any]):
    def root(self, name: str) -> Any:
        return self[name]


SCOPE = Names(input=INPUT, item="it")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("input.n == 3", True),
        ("input.n == 3.0", True),
        ("input.ok == 1", False),
        ("input.n != 3", False),
        ("input.n > 2 and input.n <= 3", True),
        ("input.n > 2 && input.n < 3", False),
        ("input.n > 5 or input.name == 'Ada'", True),
        ('input.n > 5 || input.name == "Bob"', False),
        ("not input.none", True),
        ("!input.ok", False),
        ("not not input.ok", True),
        ("not (input.ok and input.none)", True),
        ("'d' in input.name", True),
        ("1.0 in input.list", True),
        ("'name' in input", True),
        ("2 in input.list", False),
        ("input.name > 3", False),
        ("input.ok > 0", False),
        ("'b' > 'a'", True),
        ("input.list[1].deep", "x"),
        ("input.list.1.deep", "x"),
        ("input['odd key']", 7),
        ("input.none ?? 'else'", "else"),
        ("input.nothing.at.all ?? input.name", "Ada"),
        ("input.nothing == null", True),
        ("-1.5e3", -1500.0),
        ("'it\\'s'", "it's"),
        ('"\\u00e9"', "é"),
        ("true or false and false", True),
    ],
)
def test_expressions_mean_what_they_say(text: str, value: object) -> None:
    assert evaluate(parse_expression(text), SCOPE) == value
    assert evaluate(parse_condition(f"{{{{ {text} }}}}"), SCOPE) == value


@pytest.mark.parametrize(
    "text", ["", "input.", "input ==", "== 3", "input.n == 3 == 3", "(input", "input[", "input[x]", "a b", "a $ b"]
)
def test_what_is_no_expression_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse_expression(text)


def test_nesting_and_length_have_limits() -> None:
    with pytest.raises(ExpressionError, match="nested"):
        parse_expression("(" * 100 + "1" + ")" * 100)
    with pytest.raises(ExpressionError, match="longer"):
        parse_expression("1" * 20_000)


def test_a_whole_template_keeps_its_type_and_one_in_a_text_becomes_text() -> None:
    value = {"a": "{{input.list}}", "b": "Hi {{input.name}}, {{ input.n }} {{input.list}}", "c": [True, "{{input.ok}}"]}
    assert resolved(value, SCOPE) == {"a": [1, {"deep": "x"}], "b": 'Hi Ada, 3 [1,{"deep":"x"}]', "c": [True, True]}


def test_what_is_not_there_is_an_error_that_names_it_unless_asked_otherwise() -> None:
    with pytest.raises(ExpressionError, match=r"there is no input\.nobody"):
        resolved("{{input.nobody}}", SCOPE)
    with pytest.raises(ExpressionError, match=r"there is no steps\.a\.output"):
        resolved("x {{steps.a.output}}", SCOPE)
    assert resolved("{{input.nobody}}", SCOPE, strict=False) is None


def test_braces_that_never_close_are_a_mistake_with_its_place() -> None:
    with pytest.raises(ExpressionError) as mistake:
        list(expressions_in({"a": [{"b": "x {{input.n"}]}, "params"))
    assert getattr(mistake.value, "path", "") == "params.a[0].b"


def test_expressions_are_found_wherever_they_stand() -> None:
    found = [path for path, _ in expressions_in({"a": ["{{item}}", {"b": "{{input.n}} {{item}}"}], "c": 1})]
    assert found == [".a[0]", ".a[1].b", ".a[1].b"]
    assert has_template({"a": [1, {"b": "{{x}}"}]})
    assert not has_template({"a": [1, {"b": "{x}"}]})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(JSON)
def test_a_value_comes_through_a_template_unchanged(value: object) -> None:
    assert equal_values(resolved("{{input}}", Names(input=value)), value)


@given(st.text(max_size=30))
def test_no_text_makes_the_parser_fail_otherwise_than_by_saying_so(text: str) -> None:
    with contextlib.suppress(ExpressionError):
        evaluate(parse_expression(text), SCOPE, strict=False)


# ── cost ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_L140_braces_that_are_never_closed_are_found_at_once() -> None:
    """A search from each brace to the end would take hours."""
    with pytest.raises(ExpressionError, match="never closed"):
        resolved("{{" * 1_000_000, SCOPE)
    assert resolved("}}" * 1_000_000, SCOPE) == "}}" * 1_000_000


@pytest.mark.parametrize("chain", [" or ".join(["item"] * 2000), "??".join(["item"] * 2000), "not " * 2000 + "item"])
def test_L140_a_long_chain_is_refused_or_means_something(chain: str) -> None:
    with contextlib.suppress(ExpressionError):
        evaluate(parse_condition(chain), SCOPE)
    short = " or ".join(["input.none"] * 199 + ["item"])
    assert evaluate(parse_condition(short), SCOPE)


def test_L140_a_text_does_not_grow_past_its_limit() -> None:
    scope = Names(input={"x": "y" * 1_000_000})
    with pytest.raises(ExpressionError, match="grows past"):
        resolved("a{{input.x}}" * 1000, scope)
