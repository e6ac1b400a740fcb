"""The log: one line per record, text or JSON, without secrets (J114).

The formatter redacts, so that records of libraries are redacted too.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

import msgspec

from tailrace.agent.safety.redact import Redactor

Format = Literal["text", "json"]
Level = Literal["debug", "info", "warning"]
FIELDS = ("request_id", "method", "route", "status", "duration_ms", "key")


class _Lines(logging.Formatter):
    """A record as one redacted line. A traceback follows the text; in JSON it is a field."""

    def __init__(self, redactor: Redactor, form: Format, worker: int | None) -> None:
        super().__init__()
        self._worker = {"worker": worker} if worker is not None else {}
        self._redactor = redactor
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        trace = self.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""
        # before it is written as JSON: an escape within an escape would hide a secret
        message, trace = self._redactor.redact(record.getMessage()), self._redactor.redact(trace)
        level, given = record.levelname.lower(), vars(record)
        fields = {**self._worker, **{name: given[name] for name in FIELDS if name in given}}
        if self._form == "json":
            line: dict[str, Any] = {"at": at, "level": level, "logger": record.name, "message": message}
            shown = msgspec.json.encode({**line, **fields, **({"trace": trace} if trace else {})}).decode()
        else:
            shown = " ".join([at, level, message, *(f"{name}={value}" for name, value in fields.items())])
            shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in shown) + (f"\n{trace}" if trace else "")
        return self._redactor.redact(shown)


class _WithoutPeersBytes(logging.Filter):
    """Drops tracebacks: aiohttp's quote a malformed request, keys included."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[0] is not None:
            record.msg = f"{record.getMessage()}: {record.exc_info[0].__name__}"
            record.args, record.exc_info, record.exc_text = (), None, None
        return True


PEERS = logging.getLogger("tailrace.server.http")
PEERS.addFilter(_WithoutPeersBytes())


def configure(
    redactor: Redactor,
    *,
    form: Format = "text",
    level: Level = "info",
    stream: TextIO | None = None,
    worker: int | None = None,
) -> logging.Handler:
    """Logs everything of ours from `level` up to stderr; a second call replaces the first. Returns the handler. Each
    line names the `worker`, where there are several."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(_Lines(redactor, form, worker))
    logger = logging.getLogger("tailrace")
    logger.handlers[:] = [kept for kept in logger.handlers if not isinstance(kept.formatter, _Lines)]
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False
    return handler
