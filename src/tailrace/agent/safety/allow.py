"""Which commands the patterns of `approvals.allow` add to the known ones.

Pure. A pattern speaks of one simple command, word by word: `rm -rf build*` has three words, and so has each command
that it allows. What else stands in the line (another command, a redirection, a variable that is set) is judged for
itself, and a word that only the run decides is not matched (M152).
"""

from __future__ import annotations

import fnmatch
import re
import shlex
from collections.abc import Sequence

from tailrace.agent.safety.words import Word

_MORE_THAN_WORDS = re.compile(r"[\n\r;&|<>()$`\\{}#!]")
_WILDCARDS = ("*", "?", "[")


def is_allowed(words: Sequence[Word], patterns: Sequence[str]) -> bool:
    """Whether one of the patterns matches the words of this command."""
    return not any(word.dynamic for word in words) and any(_matches(words, pattern) for pattern in patterns)


def check_patterns(patterns: Sequence[str]) -> None:
    """Raises `ValueError` for a pattern that no line can match."""
    for pattern in patterns:
        if _MORE_THAN_WORDS.search(pattern):
            raise ValueError(f"{pattern!r} is more than one command in words and wildcards; it would match nothing")
        if not _plain_words(pattern):
            raise ValueError(f"{pattern!r} has no words, or a quote that is not closed")


def _plain_words(pattern: str) -> list[str] | None:
    """The words of a pattern; None where a quote is not closed."""
    try:
        return shlex.split(pattern)
    except ValueError:
        return None


def _matches(words: Sequence[Word], pattern: str) -> bool:
    wanted = _plain_words(pattern)
    if wanted is None or len(wanted) != len(words):
        return False
    return all(_word_matches(word, part) for word, part in zip(words, wanted, strict=True))


def _word_matches(word: Word, pattern: str) -> bool:
    """A wildcard stands for part of one word. It never stands for an option, for a home, for an absolute path or for a
    way out by `..`, and a glob of the line matches only where the pattern has the same: what it becomes is known only
    when it runs."""
    if word.text == pattern:
        return True
    if word.globbed or (word.text.startswith(("-", "~", "/")) and pattern.startswith(_WILDCARDS)):
        return False
    if ".." in word.text.split("/"):
        return False
    return fnmatch.fnmatchcase(word.text, pattern)
