"""What is told of a run in a line: the question, how long it took, what it cost. Pure, for every surface alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tailrace.journal.sessions.session_search import question_text
from tailrace.messages import Dialect, SpentTokens
from tailrace.ports import Run
from tailrace.providers.prices import cost_usd

TITLE_CHARACTERS = 200


def title_of(run: Run) -> str:
    """The question in one line."""
    line = " ".join(question_text(run.new.input).split())
    return line if len(line) <= TITLE_CHARACTERS else line[: TITLE_CHARACTERS - 1].rstrip() + "…"


def ended_at(run: Run) -> float | None:
    """The wall clock; None while it has not ended."""
    return run.finished.at or None if run.finished is not None else None


def duration_s(run: Run) -> float | None:
    """From the question to the end; None while it has not ended. Clocks may be set back: it is never negative."""
    at = ended_at(run)
    return None if at is None else round(max(0.0, at - run.created_at), 3)


def answering_model(run: Run) -> str:
    """The model that was asked last, as `provider/model`; the one that was wanted where none is on record."""
    spent = run.finished.spent if run.finished is not None else ()
    if not spent or not spent[-1].model:
        return run.new.model
    last = spent[-1]
    return f"{last.provider}/{last.model}" if last.provider else last.model


def cost_of(spent: Iterable[SpentTokens] | None, dialect_of: Callable[[str], Dialect | None]) -> float | None:
    """An estimate in dollars by list prices, each model by its own. None where nothing is known to have been used, or
    the price of one of the models is not known. `load_prices` must have been awaited. `dialect_of` gives the dialect of
    a provider, None for one that is not known any more."""
    total, known = 0.0, False
    for each in spent or ():
        dialect = dialect_of(each.provider)
        cost = cost_usd(each.model, each.usage, dialect) if dialect is not None else None
        if cost is None:
            return None
        total, known = total + cost, True
    return round(total, 9) if known else None
