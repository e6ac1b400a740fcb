"""Where a continuation meets the text it goes on from: text that the model repeats is let through once. Pure, and
linear in both texts (L140).

The prompt for a continuation ends where the shown text ends, without its trailing white space. A model that goes on
exactly there repeats at most that white space; one that was asked in words may begin again with the broken word, the
last sentence, or the whole answer. Fewer characters than that prove nothing: "very" after "very" is as likely meant."""

from __future__ import annotations

MIN_TELLING = 12  # letters and digits in a repetition that counts
MIN_DISTINCT = 5  # different ones among them: a ruler of dashes or zeros repeats itself
MIN_WORD = 3  # letters of a broken word
MAX_COMPARED_CHARS = 64 * 1024  # at the end of the shown text: what was said earlier is not looked at (O179)


class Overlap:
    """Feed it the continuation's text; it returns what follows the text already shown. The first start in the shown
    text from which both agree is the longest repetition."""

    def __init__(self, shown: str) -> None:
        whole = shown.rstrip()
        self._core = whole[-MAX_COMPARED_CHARS:]
        self._gap = shown[len(whole) :]
        self._is_open = not shown
        self.removed = 0  # characters of the continuation that were not let through, all from its beginning
        self._last_start = max(0, _last_telling_start(self._core))
        self._word_start = _broken_word_start(self._core)
        self._held = ""
        self._start = 0  # the first offset in the core from which what is held may be a repetition

    def feed(self, text: str) -> str:
        """What of it can be let through now."""
        if self._is_open or not text:
            return text
        self._held += text
        return "" if self._may_repeat(text) else self._let_through(self._repeated())

    def close(self, *, cut: bool = False) -> str:
        """The end of the continuation: what was held and is no repetition. `cut`: it broke off, what is held is dropped
        (E63)."""
        if self._is_open:
            return ""
        begins_again = self._core.startswith(self._held) and _last_telling_start(self._held) >= 0
        text = self._let_through(len(self._held) if cut or begins_again else self._repeated())
        self._is_open = True
        return text

    def _may_repeat(self, new: str) -> bool:
        """Whether the core goes on after what is held, from a start that counts: more text can make a repetition."""
        core, held, word_start = self._core, self._held, self._word_start
        if not core.startswith(new, self._start + len(held) - len(new)):
            self._start = core.find(held, self._start + 1)
            if not 0 <= self._start <= self._last_start:
                self._start = word_start if word_start >= 0 and core.startswith(held, word_start) else len(core)
        return self._start + len(held) < len(core)

    def _repeated(self) -> int:
        """How many characters of what is held repeat the end of the core."""
        core, held = self._core, self._held
        probe = held[: min(MIN_TELLING, len(core) - self._last_start)]
        start = core.find(probe, max(0, len(core) - len(held)))
        while 0 <= start <= self._last_start:
            if held.startswith(core[start:]):
                return len(core) - start
            start = core.find(probe, start + 1)
        word = core[self._word_start :] if self._word_start >= 0 else ""
        return len(word) if held.startswith(word) else 0

    def _let_through(self, overlap: int) -> str:
        """Past the repetition, past the white space that is shown already, and on."""
        text = self._held[overlap:]
        same = 0
        while same < len(text) and same < len(self._gap) and text[same] == self._gap[same]:
            same += 1
        self.removed += overlap + same
        self._gap = self._gap[same:]
        self._is_open = len(text) > same or not self._gap
        # Where nothing but white space came so far, what follows is compared with what is left of the gap.
        self._core = self._held = ""
        self._last_start, self._word_start = 0, -1
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
