"""The version of the storage format, numbered alike by every store. An older one is upgraded, a newer one refused."""

from __future__ import annotations

import logging

from tailrace.errors import JournalError

logger = logging.getLogger("tailrace.journal")


class OlderFormat(JournalError):
    """The store is of an older version, and who opened it only wants to look."""


class ForeignStore(JournalError):
    """The database is another program's. The message says what to set."""


class NothingStored(JournalError):
    """There is no journal in the database yet, and who opened it only wants to look."""


def check_version(where: str, version: int, known: int, *, upgrade: bool = True) -> None:
    """Raises `JournalError` for a format that only a newer Tailrace reads, and `OlderFormat` for one that would have to
    be upgraded and may not."""
    if 0 < version < known and not upgrade:
        raise OlderFormat(
            f"{where} is of an older Tailrace (format {version}, this one has {known}), and looking does not change it;"
            " `tailrace serve` or `tailrace chat` brings it to this format, and the older one cannot use it then"
        )
    if version > known:
        raise JournalError(
            f"{where} was written by a newer Tailrace (format {version}, this one knows {known}); upgrade Tailrace,"
            " or restore a backup from before that upgrade"
        )


def log_upgrading(where: str, version: int, known: int, rows: int | None) -> None:
    """Says that a store is brought to a new format, which takes minutes for a large one. `rows`: about how many its log
    has, None where that is not known; one without any is done at once."""
    if 0 < version < known and rows != 0:
        size = "" if rows is None else f", with about {rows:,} rows"
        logger.info("%s has format %d%s, and is being brought to format %d", where, version, size, known)


def log_upgrade(where: str, version: int, known: int, took_s: float) -> None:
    """Says that a store has a new format. A store that was made just now (version 0) has had no older one."""
    if 0 < version < known:
        logger.info(
            "%s had format %d and has format %d now, after %.1f s; an older Tailrace cannot use it any more",
            *(where, version, known, took_s),
        )
