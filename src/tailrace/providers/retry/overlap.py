"""Where a continuation meets the text it goes on from: text that the model repeats is let through once.

Owns the comparison, streaming: it holds text back only while that may still be a repetition. Pure, and linear in both
texts (L140).

The prompt for a continuation ends where the shown text ends, without its trailing white space (some providers
refuse it). A model that goes on exactly there repeats at most that white space. One that was asked in words may
begin again with the broken word, the last sentence, or the whole answer. Fewer characters than that prove nothing:
"very" after "very" is as likely meant.
"""

from __future__ import annotations

MIN_TELLING = 12  # letters and digits in a repetition that counts
MIN_DISTINCT = 5  # different ones among them: a ruler of dashes or zeros repeats itself
MIN_WORD = 3  # letters of a broken word


class Overlap:
    """Feed it the continuation's text; it returns what follows the text already shown.

    The search is Knuth-Morris-Pratt with what is held as the pattern, which grows, and the core as the text: the
    first start at which both agree is the longest repetition.
    """

    def __init__(self, shown: str) -> None:
        self._core = shown.rstrip()
        self._gap = shown[len(self._core) :]
        self._is_open = not shown
        self.removed = 0  # characters of the continuation that were not let through, all from its beginning
        self._last_start = max(0, _last_telling_start(self._core))
        self._word_start = _broken_word_start(self._core)
        self._reset()

    def _reset(self) -> None:
        self._held: list[str] = []  # one character each
        self._borders = [0, 0]  # by length: how much of the end of what is held is also its beginning
        self._start = 0  # the first offset in the core from which what is held may be a repetition
        self._matched = 0  # characters held that agree with the core from there

    def feed(self, text: str) -> str:
        """What of it can be let through now."""
        if self._is_open or not text:
            return text
        self._held += text
        if self._may_repeat():
            return ""
        return self._let_through(self._matched)

    def close(self, *, cut: bool = False) -> str:
        """The end of the continuation, or of its text: what was held and is no repetition. `cut`: it broke off, so what
        is held is dropped, because more of it might have shown that it is a repetition (E63)."""
        if self._is_open:
            return ""
        if cut or (self._held and self._start == 0 and _last_telling_start("".join(self._held)) >= 0):
            overlap = len(self._held)
        else:
            self._may_repeat(ended=True)
            overlap = self._matched
        text = self._let_through(overlap)
        self._is_open = True
        return text

    def _may_repeat(self, *, ended: bool = False) -> bool:
        """Whether more text could still make a repetition of what is held. If not, or if the continuation has `ended`,
        `_matched` is the length of the repetition."""
        core, held = self._core, self._held
        while self._start < len(core):
            at = self._start + self._matched
            if self._start <= self._last_start or self._start == self._word_start:
                if at == len(core):
                    return False
                if self._matched == len(held):
                    if not ended:
                        return True
                elif core[at] == held[self._matched]:
                    self._matched += 1
                    continue
            self._next_start()
        return False

    def _next_start(self) -> None:
        if self._matched:
            border = self._border(self._matched)
            self._start += self._matched - border
            self._matched = border
        else:
            found = self._core.find(self._held[0], self._start + 1) if self._held else -1
            self._start = found if found >= 0 else len(self._core)

    def _border(self, length: int) -> int:
        held, borders = self._held, self._borders
        while len(borders) <= length:
            end = len(borders) - 1
            border = borders[end]
            while border and held[border] != held[end]:
                border = borders[border]
            borders.append(border + (held[border] == held[end]))
        return borders[length]

    def _let_through(self, overlap: int) -> str:
        """Past the repetition, past the white space that is shown already, and on."""
        text = "".join(self._held)[overlap:]
        same = 0
        while same < len(text) and same < len(self._gap) and text[same] == self._gap[same]:
            same += 1
        self.removed += overlap + same
        self._gap = self._gap[same:]
        self._is_open = len(text) > same or not self._gap
        # Where nothing but white space came so far, what follows is compared with what is left of the gap.
        self._core = ""
        self._reset()
        return text[same:]


def _broken_word_start(core: str) -> int:
    """Where the word begins with which the core ends; -1 for a word that is too short, or none."""
    start = len(core)
    while start and core[start - 1].isalnum() and not core[start - 1].isdecimal():
        start -= 1
    return start if len(core) - start >= MIN_WORD else -1


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
