"""What providers write in their errors where neither a status nor a code says it: one table of texts by their meaning.

The rows are in `error_texts.toml`. The modules that ask `says` decide which statuses count and what follows.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

Meaning: TypeAlias = Literal[
    "too_long",  # more than the model reads
    "answer_room",  # names the tokens that the answer may have
    "media",  # names an image or a file; of a 400
    "media_unsupported",  # says that an image or a file is not supported, whatever the status
    "no_images",  # the model reads no image, whichever it is
    "not_the_servers_fault",  # a 500 that will come again
    "policy",  # refused for what the request says
    "quota",  # the account has nothing left to spend
    "passes",  # says when to try again
    "stream_refused",  # of a text that names the stream
    "names_a_field",  # of the request: that is at fault, streamed or not; upper case counts
    "field_refused",  # of a text that names a field of ours
    "no_schema",  # structured output is not known
]


class ErrorText(msgspec.Struct, frozen=True):
    vendor: str
    pattern: str
    example: str


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`words` stand in the patterns in angle brackets."""

    words: dict[str, str]
    rows: dict[Meaning, tuple[ErrorText, ...]]


@cache
def table() -> dict[Meaning, tuple[ErrorText, ...]]:
    """By meaning, from `error_texts.toml`."""
    read = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=_Table)
    return {meaning: tuple(_whole(row, read.words) for row in rows) for meaning, rows in read.rows.items()}


def _whole(row: ErrorText, words: dict[str, str]) -> ErrorText:
    pattern = re.sub(r"<([a-z_]+)>", lambda name: words[name[1]], row.pattern)
    return msgspec.structs.replace(row, pattern=pattern)


@cache
def _pattern(meaning: Meaning) -> re.Pattern[str]:
    flags = 0 if meaning == "names_a_field" else re.IGNORECASE
    return re.compile("|".join(row.pattern for row in table()[meaning]), flags)


def says(meaning: Meaning, text: str) -> bool:
    """Whether a provider's error has words that mean this."""
    return _pattern(meaning).search(text) is not None
