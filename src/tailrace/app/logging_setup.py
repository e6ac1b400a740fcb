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

    def __init__(self, redactor: Redactor, form: Format) -> None:
        super().__init__()
        self._redactor = redactor
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        trace = self.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""
        if self._form == "json":
            line = self._json(record, at, trace)
        else:
            line = " ".join([at, record.levelname.lower(), record.getMessage(), *self._pairs(record)])
            line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in line) + (f"\n{trace}" if trace else "")
        return self._redactor.redact(line)

    @staticmethod
    def _json(record: logging.LogRecord, at: str, trace: str) -> str:
        line: dict[str, Any] = {"at": at, "level": record.levelname.lower(), "logger": record.name}
        line["message"] = record.getMessage()
        line.update({field: getattr(record, field) for field in FIELDS if hasattr(record, field)})
        if trace:
            line["trace"] = trace
        return msgspec.json.encode(line).decode()

    @staticmethod
    def _pairs(record: logging.LogRecord) -> list[str]:
        return [f"{field}={getattr(record, field)}" for field in FIELDS if hasattr(record, field)]


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
    redactor: Redactor, *, form: Format = "text", level: Level = "info", stream: TextIO | None = None
) -> logging.Handler:
    """Logs everything of ours from `level` up to stderr; a second call replaces the first. Returns the handler."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(_Lines(redactor, form))
    logger = logging.getLogger("tailrace")
    logger.handlers[:] = [kept for kept in logger.handlers if not isinstance(kept.formatter, _Lines)]
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False
    return handler
