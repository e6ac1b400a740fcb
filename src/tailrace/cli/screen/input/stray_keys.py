"""Keys that were meant for a question which no longer stands: they answer nothing, and are no part of a message either.

Who answers with a word types the rest of it after the key that counted. Who is about to answer, or says why not, may
press keys after somebody else's answer has taken the question away. They are told from a message by their time, from
the frame on that shows it: a message is begun by who has seen that the question is gone. Pure, but for the clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, Literal

MEANT_S: Final = 0.5  # a person needs so long to see that the question is gone, and between two keys of one thought
OWN_WORD_S: Final = 1.0  # between two letters of the word whose first one was the answer
_ENTER: Final = "\r"
_Meant = Literal["nothing", "answer", "reason"]


class StrayKeys:
    """`words` are what the keys of an answer stand for; `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float], words: Mapping[str, str]) -> None:
        self._clock = clock
        self._words = words
        self._meant: _Meant = "nothing"
        self._until = 0.0  # of that; infinite until the frame without the question is on the screen
        self._rest = ""  # of a word whose first letter was pressed
        self._rest_until = 0.0
        self._letter_s = 0.0  # for each letter of it

    def answer_was_pressed(self, word: str) -> None:
        """The user's own answer, by the first letter of this word."""
        self.forget()
        self._begin_word(word, OWN_WORD_S)

    def question_went(self, meant: Literal["answer", "reason"]) -> None:
        """While the user could answer it, or was typing a reason."""
        self.forget()
        self._meant, self._until = meant, math.inf

    def was_drawn(self) -> None:
        if self._until == math.inf:
            self._until = self._clock() + MEANT_S

    def forget(self) -> None:
        """The user has turned to something else: every key counts from here on."""
        self._meant, self._until, self._rest = "nothing", 0.0, ""

    @property
    def may_come(self) -> bool:
        return self._clock() < max(self._until, self._rest_until if self._rest else 0.0)

    def takes(self, key: str) -> bool:
        """Whether this key is one of them. The first that is not ends it: a message has begun."""
        now = self._clock()
        if self._rest and now < self._rest_until and key.lower() == self._rest[0]:
            self._rest, self._rest_until = self._rest[1:], now + self._letter_s
            return True
        if now < self._until and self._meant == "reason":
            if key == _ENTER:
                self.forget()
            else:
                self._until = max(self._until, now + MEANT_S)
            return True
        if now < self._until and (word := self._words.get(key.lower())):
            self._begin_word(word, MEANT_S)
            if self._until < math.inf:
                self._until = 0.0  # whoever has seen it presses one
            return True
        self.forget()
        return False

    def _begin_word(self, word: str, letter_s: float) -> None:
        self._rest, self._letter_s, self._rest_until = word[1:] + _ENTER, letter_s, self._clock() + letter_s
