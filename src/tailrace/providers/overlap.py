"""Where a continuation meets the text it goes on from: what the model says twice is let through once.

Owns the comparison, streaming: it holds text back only while that may still be a repetition. Pure.

The prompt for a continuation ends where the shown text ends, without its trailing white space (some providers
refuse it). A model that goes on exactly there repeats at most that white space. One that was asked in words may
begin again with the broken word, the last sentence, or the whole answer. Fewer characters than that prove nothing:
"very" after "very" is as likely meant.
"""

from __future__ import annotations

import re

MIN_TELLING = 12  # letters and digits in a repetition that counts
MIN_DISTINCT = 5  # different ones among them: a ruler of dashes or zeros repeats itself
MIN_WORD = 3  # letters of a broken word
_LAST_WORD = re.compile(r"[^\W\d_]+\Z")


class Overlap:
    """Feed it the continuation's text; it returns what follows the text already shown."""

    def __init__(self, shown: str) -> None:
        self._core = shown.rstrip()
        self._gap = shown[len(self._core) :]
        self._held: list[str] = []
        self._matched = 0  # characters held
        self._starts: list[int] | None = None  # offsets in the core from which what is held may be a repetition
        self._overlap = 0  # characters of the longest repetition that reached the core's end
        self._is_open = not shown
        self.removed = 0  # characters of the continuation that were not let through, all from its beginning

    def feed(self, text: str) -> str:
        """What of it can be let through now."""
        if self._is_open or not text:
            return text
        self._narrow(text)
        self._held.append(text)
        self._matched += len(text)
        if self._starts:
            return ""
        return self._let_through()

    def close(self, *, cut: bool = False) -> str:
        """The end of the continuation, or of its text: what was held and is no repetition. `cut`: it broke off, so
        an answer that had begun anew and did not get past what is shown adds nothing."""
        if self._is_open:
            return ""
        if self._starts and self._starts[0] == 0 and (cut or _is_telling("".join(self._held))):
            self._overlap = self._matched
        text = self._let_through()
        self._is_open = True
        return text

    def _narrow(self, text: str) -> None:
        core, matched = self._core, self._matched
        starts = self._starts if self._starts is not None else _possible_starts(core, text[0])
        alive: list[int] = []
        for start in starts:
            at = start + matched
            if len(core) - at > len(text):
                if core.startswith(text, at):
                    alive.append(start)
            elif text.startswith(core[at:]):
                self._overlap = max(self._overlap, len(core) - start)
        self._starts = alive

    def _let_through(self) -> str:
        """Past the repetition, past the white space that is shown already, and on."""
        text = "".join(self._held)[self._overlap :]
        self.removed += self._overlap
        same = 0
        while same < len(text) and same < len(self._gap) and text[same] == self._gap[same]:
            same += 1
        self.removed += same
        self._gap = self._gap[same:]
        self._is_open = len(text) > same or not self._gap
        # Nothing but white space came so far: what follows is compared with what is left of the gap.
        self._held, self._matched, self._overlap, self._starts = [], 0, 0, []
        if not self._is_open:
            self._core = ""
        return text[same:]


def _possible_starts(core: str, first: str) -> list[int]:
    """Where in the core a repetition may begin that would count, first to last."""
    limit = _last_telling_start(core)
    starts = [at for at in range(limit + 1) if core[at] == first]
    if core and core[0] == first and limit < 0:
        starts.append(0)
    word = _LAST_WORD.search(core)
    if word is not None and len(word[0]) >= MIN_WORD and word.start() > max(limit, 0) and word[0][0] == first:
        starts.append(word.start())
    return starts


def _last_telling_start(core: str) -> int:
    """The largest offset from which the rest of the core is long and varied enough; -1 for none."""
    count, seen = 0, set[str]()
    for at in range(len(core) - 1, -1, -1):
        if core[at].isalnum():
            count += 1
            seen.add(core[at])
            if count >= MIN_TELLING and len(seen) >= MIN_DISTINCT:
                return at
    return -1


def _is_telling(text: str) -> bool:
    return _last_telling_start(text) >= 0
