"""The log: one line per record, text or JSON, without secrets (J114).

The formatter redacts, so that records of libraries are redacted too. The lines of requests may wait a moment in the
handler, which writes many of them at once (see `access_log`).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO, TypeAlias

import msgspec

from tailrace.agent.safety.redact import Redactor

Format = Literal["text", "json"]
Level = Literal["debug", "info", "warning"]
FIELDS = ("request_id", "method", "route", "status", "duration_ms", "key")
OURS: Final = logging.getLogger("tailrace")
ACCESS: Final = logging.getLogger("tailrace.access")
REQUEST: Final = "request"  # the message of a request's line
# When a request was answered, and its fields in the order of FIELDS.
AnsweredRequest: TypeAlias = tuple[float, str, str, str, int, float, str]
_LINES_PER_WRITE: Final = 10  # below 4,096 bytes: a pipe takes them whole, so lines of several workers do not mix


class _Lines(logging.Formatter):
    """A record as one redacted line. A traceback follows the text; in JSON it is a field."""

    def __init__(self, redactor: Redactor, form: Format, worker: int | None) -> None:
        super().__init__()
        self._worker = {"worker": worker} if worker is not None else {}
        self._worker_text = f" worker={worker}" if worker is not None else ""
        self._redactor = redactor
        self._request = redactor.redact(REQUEST)
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
            shown = _printable(shown) + (f"\n{trace}" if trace else "")
        return self._redactor.redact(shown)

    def format_requests(self, requests: Sequence[AnsweredRequest]) -> str:
        """What `format` makes of their records, joined: without the records, and redacted at once."""
        lines = [self._request_line(request) for request in requests]
        if self._redactor.words:  # a pattern may say where a text begins and ends
            return "\n".join(map(self._redactor.redact, lines))
        return self._redactor.redact("\n".join(lines))

    def _request_line(self, request: AnsweredRequest) -> str:
        created, request_id, method, route, status, duration_ms, key = request
        at = datetime.fromtimestamp(created, UTC).isoformat(timespec="milliseconds")
        if self._form == "json":
            line = {"at": at, "level": "info", "logger": ACCESS.name, "message": self._request, **self._worker}
            return msgspec.json.encode({**line, **dict(zip(FIELDS, request[1:], strict=True))}).decode()
        shown = (
            f"{at} info {self._request}{self._worker_text} request_id={request_id} method={method} route={route} "
            f"status={status} duration_ms={duration_ms} key={key}"
        )
        return _printable(shown)


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes a record when it comes. Lines of requests wait until `flush`, or until another record comes: the log is
    in the order of what happened. `add_request` may be called while another thread writes."""

    def __init__(self, stream: TextIO, lines: _Lines) -> None:
        super().__init__(stream)
        self.setFormatter(lines)
        self._lines = lines
        self._waiting: list[AnsweredRequest] = []
        self.add_request = self._waiting.append

    def emit(self, record: logging.LogRecord) -> None:
        self._write_requests()
        super().emit(record)

    def flush(self) -> None:
        self._write_requests()
        super().flush()

    def _write_requests(self) -> None:
        if not self._waiting:
            return
        self.acquire()
        try:
            while requests := self._waiting[:_LINES_PER_WRITE]:
                del self._waiting[: len(requests)]
                self._write(requests)
        finally:
            self.release()

    def _write(self, requests: Sequence[AnsweredRequest]) -> None:
        try:
            self.stream.write(self._lines.format_requests(requests) + self.terminator)
            self.stream.flush()
        except (OSError, ValueError):  # as in `emit`: what cannot be written ends no request
            self.handleError(ACCESS.makeRecord(ACCESS.name, logging.INFO, __file__, 0, REQUEST, (), None))


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
) -> LineHandler:
    """Logs everything of ours from `level` up to stderr; a second call replaces the first. Returns the handler. Each
    line names the `worker`, where there are several."""
    handler = LineHandler(stream if stream is not None else sys.stderr, _Lines(redactor, form, worker))
    for replaced in [kept for kept in OURS.handlers if isinstance(kept, LineHandler)]:
        replaced.flush()
        OURS.removeHandler(replaced)
    OURS.addHandler(handler)
    OURS.setLevel(level.upper())
    OURS.propagate = False
    return handler
