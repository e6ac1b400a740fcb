"""Log records as notices of a conversation: on stderr they would be written across the screen."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Notices(logging.Handler):
    def __init__(self, notify: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._notify = notify

    def emit(self, record: logging.LogRecord) -> None:
        self._notify(record.getMessage())


@contextmanager
def shown_log(notify: Callable[[str], None]) -> Iterator[None]:
    handler, root = _Notices(notify), logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
