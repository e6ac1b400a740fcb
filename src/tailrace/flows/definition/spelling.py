"""Which name a misspelt one probably means. Bounded: names may come from outside (L140)."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Final

MAX_NAMES: Final = 100  # that a misspelt one is compared with
MAX_NAME_CHARS: Final = 100


def did_you_mean(name: str, known: Collection[str], *, near: float = 0.6) -> tuple[str, str | None]:
    """The end of an error message, and the name that was probably meant, where there is one. `near`: difflib's ratio
    from which on a name is close."""
    shown, few = name[:MAX_NAME_CHARS], sorted(known)[:MAX_NAMES]
    comparable = [other for other in few if len(other) <= MAX_NAME_CHARS]
    close = difflib.get_close_matches(shown, comparable, n=1, cutoff=near)
    if close:
        return f"; did you mean {close[0]}?", close[0]
    more = ", …" if len(known) > len(few) else ""
    return f"; there are: {', '.join(few) or 'none'}{more}", None


def no_such(what: str, name: str, known: Collection[str]) -> str:
    return f"there is no {what} {name[:MAX_NAME_CHARS]!r}{did_you_mean(name, known)[0]}"
