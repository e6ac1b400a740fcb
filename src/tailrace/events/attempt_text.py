"""A text written by several attempts of one model call, any of which may be withdrawn.

Pure. Stands beside the events: an entry's `attempt` says which attempt wrote a chunk, and `AttemptDiscarded` withdraws
what one attempt wrote.
"""

from __future__ import annotations

from collections.abc import Iterable


class AttemptText:
    """Adding costs the same however long the text has become; joining it again costs one copy of the text."""

    __slots__ = ("_runs",)

    def __init__(self, text: str = "", lengths: Iterable[tuple[int, int]] | None = None) -> None:
        """`lengths` as of another `AttemptText`. Without them attempt 0 wrote `text`, and no event withdraws it."""
        self._runs: list[tuple[int, list[str]]] = []  # consecutive chunks of one attempt share a list
        if not text and not lengths:
            return
        lengths = lengths if lengths is not None else [(0, len(text))]
        start = 0
        for attempt, length in lengths:
            self.add(text[start : start + length], attempt)
            start += length

    def __bool__(self) -> bool:
        """Whether a chunk was added that is not withdrawn. An empty chunk counts."""
        return bool(self._runs)

    def add(self, text: str, attempt: int) -> None:
        runs = self._runs
        if runs and (newest := runs[-1])[0] == attempt:
            newest[1].append(text)
        else:
            runs.append((attempt, [text]))

    def extend(self, other: AttemptText) -> None:
        """As `add` of each piece of the other."""
        for attempt, text in other.pieces():
            self.add(text, attempt)

    def withdraw(self, attempt: int) -> bool:
        """Removes what this attempt wrote. False where it wrote nothing."""
        kept = [piece for piece in self.pieces() if piece[0] != attempt]
        found = len(kept) < len(self._runs)
        self._runs = []
        for number, text in kept:
            self.add(text, number)
        return found

    @property
    def text(self) -> str:
        match self._runs:
            case []:
                return ""
            case [(_, [text])]:  # of one attempt, and joined or short
                return text
            case _:
                return "".join([text for _, text in self.pieces()])

    def pieces(self) -> list[tuple[int, str]]:
        """(attempt, text) in order."""
        for _, chunks in self._runs:
            if len(chunks) > 1:
                chunks[:] = ["".join(chunks)]
        return [(attempt, chunks[0]) for attempt, chunks in self._runs]

    def lengths(self) -> tuple[tuple[int, int], ...]:
        """(attempt, characters) in order."""
        return tuple((attempt, len(text)) for attempt, text in self.pieces())
