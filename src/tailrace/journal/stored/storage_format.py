"""The version of the storage format, numbered alike by every store. An older one is upgraded, a newer one refused."""

from __future__ import annotations

from tailrace.errors import JournalError


def check_version(where: str, version: int, known: int) -> None:
    """Raises `JournalError` for a format that only a newer Tailrace reads."""
    if version > known:
        raise JournalError(
            f"{where} was written by a newer Tailrace (format {version}, this one knows {known}); upgrade Tailrace,"
            " or restore a backup from before that upgrade"
        )
