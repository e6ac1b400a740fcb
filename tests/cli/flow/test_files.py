"""The values of a sequence's input, as they are typed."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.cli.flow.files import parse_input
from tailrace.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "wanted", "value"),
    [
        ("3", None, 3),
        ("0.5", None, 0.5),
        ("1.0", None, 1.0),
        ("1.10", None, "1.10"),  # a version
        ("1e3", None, "1e3"),
        ("1234e56", None, "1234e56"),  # a commit
        ("1.10", "number", 1.1),
        ("1e3", ["integer", "null"], 1000.0),
        ("1.10", "string", "1.10"),
        ("3", "string", "3"),
        ("true", "string", "true"),
        ('"1.10"', "string", "1.10"),
        ('["a", 1]', None, ["a", 1]),
        ("true", None, True),
        ("x=y", None, "x=y"),
    ],
)
def test_a_value_is_what_was_typed_or_what_the_schema_says(text: str, wanted: object, value: object) -> None:
    schema: dict[str, Any] | None = {"properties": {"v": {"type": wanted}}} if wanted else None
    given = parse_input([f"v={text}"], schema)
    assert given == {"v": value}
    assert type(given["v"]) is type(value)


def test_a_value_that_is_given_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="--input: 'v' is given twice"):
        parse_input(["v=1", "w=1", "v=2"])
