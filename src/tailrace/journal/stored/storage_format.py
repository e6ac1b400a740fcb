"""The version of the storage format, numbered alike by every store."""

from __future__ import annotations

from typing import Final

from tailrace.errors import JournalError

FORMAT: Final = 1


class ForeignStore(JournalError):
    """The database is another program's. The message says what to set."""


class NothingStored(JournalError):
    """The database has no journal yet, and the caller does not want to create one."""


def check_format(where: str, version: int) -> None:
    """Raises `JournalError` for a store of another format; 0 is a store that has no tables yet."""
    if version not in (0, FORMAT):
        raise JournalError(
            f"{where} has storage format {version} and this Tailrace reads format {FORMAT}: use the version of Tailrace"
            " that wrote it, or set store.url to a new place"
        )
