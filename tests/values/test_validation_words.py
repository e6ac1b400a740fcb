"""What is wrong with a value is said in plain words, with its place."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from tailrace.values.validation_words import decoding_problem, validation_mistake


class Inner(msgspec.Struct):
    """A part of the whole."""

    name: Annotated[str, Meta(min_length=2, max_length=5)]


class Whole(msgspec.Struct, forbid_unknown_fields=True):
    """One field of each kind that a route or a tool has."""

    limit: int = 1
    share: Annotated[float, Meta(gt=0, le=1)] = 1.0
    count: Annotated[int, Meta(ge=1, le=200)] | None = None
    fast: bool = False
    status: Literal["open", "shut"] | None = None
    day: Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\d$", description="a day as 2026-11-30")] = "2026-11-30"
    code: Annotated[str, Meta(pattern="^[A-Z]+$")] = "A"
    texts: str | list[str] | None = None
    pair: tuple[int, int] = (1, 2)
    names: Annotated[list[str], Meta(min_length=1, max_length=2)] = msgspec.field(default_factory=lambda: ["a"])
    inner: list[Inner] = []
    keys: dict[Annotated[str, Meta(min_length=2)], int] = {}
    even: Annotated[int, Meta(multiple_of=2)] = 2


@pytest.mark.parametrize(
    ("value", "place", "words"),
    [
        ({"limit": "no"}, ".limit", "must be a whole number, not text"),
        ({"limit": 1.5}, ".limit", "must be a whole number, not a fraction"),
        ({"limit": True}, ".limit", "must be a whole number, not true or false"),
        ({"limit": None}, ".limit", "must be a whole number, not null"),
        ({"share": "half"}, ".share", "must be a number, not text"),
        ({"share": 0}, ".share", "must be more than 0"),
        ({"share": 1.5}, ".share", "must be at most 1"),
        ({"count": 0}, ".count", "must be at least 1"),
        ({"count": 10**30}, ".count", "must be at most 200"),
        ({"count": "x"}, ".count", "must be a whole number or null, not text"),
        ({"even": 3}, ".even", "must be a multiple of 2"),
        ({"fast": 1}, ".fast", "must be true or false, not a number"),
        ({"status": "ajar"}, ".status", "must be one of open, shut, not 'ajar'"),
        ({"day": "today"}, ".day", "must be a day as 2026-11-30"),
        ({"code": "a"}, ".code", "must match the pattern '^[A-Z]+$'"),
        ({"texts": 1}, ".texts", "must be text, a list or null, not a number"),
        ({"pair": [1]}, ".pair", "must have 2 items, not 1"),
        ({"names": []}, ".names", "must not be empty"),
        ({"names": list("abc")}, ".names", "must have at most 2 items"),
        ({"names": {}}, ".names", "must be a list, not an object"),
        ({"names": ["a", 1]}, ".names[1]", "must be text, not a number"),
        ({"inner": [{"name": "ab"}, {"name": "a"}]}, ".inner[1].name", "must have at least 2 characters"),
        ({"inner": [{}]}, ".inner[0].name", "is missing"),
        ({"keys": {"a": 1}}, ".keys", "a key must have at least 2 characters"),
        ([], "", "must be an object, not a list"),
    ],
)
def test_a_mistake_is_said_in_plain_words_with_its_place(value: Any, place: str, words: str) -> None:
    with pytest.raises(msgspec.ValidationError) as mistake:
        msgspec.convert(value, Whole)
    assert validation_mistake(mistake.value, Whole) == (place, words)
    shown = f"{place.removeprefix('.')}: {words}" if place else words
    assert decoding_problem(mistake.value, Whole) == shown
    assert "`" not in shown


def test_a_field_that_is_not_known_is_told_which_there_are() -> None:
    with pytest.raises(msgspec.ValidationError) as mistake:
        msgspec.convert({"limt": "x"}, Whole)
    place, words = validation_mistake(mistake.value, Whole)
    assert (place, words.startswith("there is no field 'limt'; there are code, count, day, ")) == ("", True)
    assert validation_mistake(mistake.value) == ("", "there is no field 'limt'")


def test_what_somebody_sent_cannot_pass_for_the_place_nor_fill_the_line() -> None:
    with pytest.raises(msgspec.ValidationError) as mistake:
        msgspec.convert({"status": "x - at `$.limit`"}, Whole)
    assert validation_mistake(mistake.value)[0] == ".status"
    with pytest.raises(msgspec.ValidationError) as mistake:
        msgspec.convert({"status": "x" * 100_000}, Whole)
    assert len(validation_mistake(mistake.value, Whole)[1]) < 150


@pytest.mark.parametrize(
    ("data", "words"), [(b'{"a": ', "it ends too early"), (b"{a}", "object keys must be strings (byte 1)")]
)
def test_what_is_no_json_is_said_once(data: bytes, words: str) -> None:
    with pytest.raises(msgspec.DecodeError) as mistake:
        msgspec.json.decode(data)
    assert decoding_problem(mistake.value) == words
