"""Reads the arguments of a program by the conventions of getopt: bundled letters, values, abbreviated long options.

Pure. A program's options are told in one string per kind: `Options("vf", "ks", "verbose signal=")` has the letters
`v` and `f` without and `k` and `s` with a value, and two long options, the second with a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.agent.safety.words import Word


class Parsed(NamedTuple):
    """`given` are the options with their values ("" without one), by their letter or long name. `unknown` says that an
    option is none of the program's, so that what follows it may be its value."""

    given: list[tuple[str, Word]]
    operands: list[Word]
    unknown: bool = False

    def has(self, *names: str) -> bool:
        return any(name in names for name, _ in self.given)

    def values(self, *names: str) -> list[Word]:
        return [value for name, value in self.given if name in names]


class Options(NamedTuple):
    flags: str = ""
    with_value: str = ""
    long: str = ""

    def parse(self, words: Sequence[Word], *, permuted: bool = True) -> Parsed:
        """`permuted`: options may stand behind operands, as GNU programs allow; a wrapper's may not."""
        given: list[tuple[str, Word]] = []
        operands: list[Word] = []
        unknown = False
        at = 0
        while at < len(words):
            word = words[at]
            at += 1
            if word.text == "--":
                operands += words[at:]
                break
            if not word.text.startswith("-") or word.text == "-":
                operands.append(word)
                if permuted:
                    continue
                operands += words[at:]
                break
            following = words[at] if at < len(words) else Word("")
            found, used, known = self._long(word, following) if word.text[1] == "-" else self._short(word, following)
            given += found
            at += used
            unknown |= not known
        return Parsed(given, operands, unknown)

    def _long(self, word: Word, following: Word) -> tuple[list[tuple[str, Word]], int, bool]:
        name, sign, value = word.text[2:].partition("=")
        known = [option for option in self.long.split() if option.rstrip("=?").startswith(name)]
        exact = [option for option in known if option.rstrip("=?") == name]
        options = exact or known
        if not options:
            return [(name, Word(value))], 0, False
        takes_next = options[0].endswith("=") and not sign
        given = [(option.rstrip("=?"), following if takes_next else word._replace(text=value)) for option in options]
        return given, int(takes_next), True

    def _short(self, word: Word, following: Word) -> tuple[list[tuple[str, Word]], int, bool]:
        given: list[tuple[str, Word]] = []
        for at, letter in enumerate(word.text[1:], 2):
            if letter in self.with_value:
                rest = word.text[at:]
                given.append((letter, word._replace(text=rest) if rest else following))
                return given, int(not rest), True
            given.append((letter, Word("")))
        return given, 0, all(letter in self.flags for letter, _ in given)
