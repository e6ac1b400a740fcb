"""The ids of answers: a run's id under the prefix of the client's API."""

from __future__ import annotations

import re
from typing import Final

from tailrace.wire.dialects import ANTHROPIC, CHAT, RESPONSES
from tailrace.wire.served_dialect import ServedDialect

_PREFIXES: Final = "|".join(re.escape(dialect.id_prefix) for dialect in (CHAT, RESPONSES, ANTHROPIC))
_ANSWER_ID: Final = re.compile(rf"(?:{_PREFIXES})([0-9a-z]+)")


def answer_id(dialect: ServedDialect, run_id: str) -> str:
    """The id of a run's answer in this API."""
    return dialect.id_prefix + run_id.removeprefix("run_")


def run_id_of(given: str) -> str:
    """The run behind an answer's id; the text unchanged where it is no such id (no run has it)."""
    bare = _ANSWER_ID.fullmatch(given)
    return f"run_{bare[1]}" if bare else given
