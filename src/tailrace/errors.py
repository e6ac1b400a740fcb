"""What can go wrong, named for what the caller can do about it.

Owns the taxonomy alone: no I/O, no clock, no knowledge of any provider. Each adapter translates foreign exceptions
into these, once, at its edge; the code above an adapter sees only these.
"""

from __future__ import annotations

from typing import Any, Literal

ErrorKind = Literal["retryable", "permanent"]
Deadline = Literal["connect", "first_token", "idle", "progress", "total"]


class TailraceError(Exception):
    """Base of every error that this package raises on purpose. Its text is one line that a user can act on."""


class ToolRefused(TailraceError):
    """A tool does not do what its arguments say: the model reads why."""


class ConfigError(TailraceError):
    """The user must change something first. Names the file, the line and the key where they are known; `refused` is the
    value, where it need not be the one in the file."""

    def __init__(self, message: str, *, file: str = "", line: int = 0, key: str = "", refused: str = "") -> None:
        self.message, self.file, self.line, self.key, self.refused = message, file, line, key, refused
        where = f"{file}:{line}" if file and line else file
        super().__init__(": ".join(part for part in (where, key, message) if part))


class ProviderError(TailraceError):
    """A model call failed. Raised as `Retryable` or `Permanent`, never as itself."""

    kind: ErrorKind
    request_id = ""  # of the call, as the provider's error has it
    tried: tuple[str, ...] = ()  # the providers that were asked before the call was given up, in order

    def __init__(self, message: str, *, status: int | None = None, code: str = "", provider: str = "") -> None:
        self.status = status  # the HTTP status, or the one that an error event stands for
        self.code = code  # the provider's own code ("overloaded_error", "invalid_api_key")
        self.provider = provider
        super().__init__(message)


class Retryable(ProviderError):
    """The same request may succeed later or elsewhere."""

    kind: ErrorKind = "retryable"
    retry_after_s: float | None = None


class Unavailable(Retryable):
    """Nothing of an answer was received: refused connection, 408, 409, 429, 5xx. Retrying is safe."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str = "",
        provider: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, status=status, code=code, provider=provider)
        self.retry_after_s = retry_after_s


class TimedOut(Retryable):
    """One of the separate deadlines passed; `deadline` says which."""

    def __init__(self, message: str, *, deadline: Deadline, provider: str = "") -> None:
        super().__init__(message, provider=provider)
        self.deadline: Deadline = deadline


class StreamCut(Retryable):
    """The stream ended in the middle of the answer, or without its terminal event."""


EMPTY_ANSWER = "empty_answer"  # the code of an error: the answer has neither text nor calls, or not those it says
ANSWER_TOO_LONG = "answer_too_long"  # the code of an error: no other attempt goes on from the answer


class PeerError(Retryable):
    """The peer broke its protocol. `excerpt` keeps the beginning of the bytes that show it."""

    def __init__(
        self, message: str, *, excerpt: bytes = b"", status: int | None = None, code: str = "", provider: str = ""
    ) -> None:
        super().__init__(message, status=status, code=code, provider=provider)
        self.excerpt = excerpt[:512]


class Permanent(ProviderError):
    """The same request will fail again: something about it must change."""

    kind: ErrorKind = "permanent"


class Rejected(Permanent):
    """The provider refused the request: key, quota, model, size, malformed."""


class LlmCallError(TailraceError):
    """A durable model call failed or was stopped. `kind` says whether another try may go better; `code` is more
    precise, and `run_id` names the run whose log tells the rest."""

    def __init__(self, message: str, *, kind: ErrorKind = "permanent", code: str = "", run_id: str = "") -> None:
        self.kind: ErrorKind = kind
        self.code, self.run_id = code, run_id
        super().__init__(message)


class JournalError(TailraceError):
    """The journal could not read or write what was asked."""


class StorageFailed(JournalError):
    """Storage could not be read or written: a full disk, a lock that another process holds, an input/output error. The
    same call may succeed later. `reason` says so to a client: it names no path of this machine. `announced`: the
    journal has logged when it began and will log when it is over, so that callers log nothing."""

    def __init__(
        self, message: str, *, reason: str = "the journal cannot be used right now", announced: bool = False
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.announced = announced


class RunNotFound(JournalError):
    """No run has this id."""


class RunOwned(JournalError):
    """Another live owner holds the run. `owner` says who."""

    def __init__(self, message: str, *, owner: str = "") -> None:
        super().__init__(message)
        self.owner = owner


class StaleEpoch(JournalError):
    """A newer claim exists: this writer is fenced off and must stop."""


class RunSealed(JournalError):
    """The run has ended; nothing can be appended."""


class RunParked(JournalError):
    """The run was put aside because executing it killed the process again and again; a person decides what is next."""


class OutputMismatch(JournalError):
    """The output to seal the run with differs from the fold of its log. Nothing was written."""


class CursorAhead(JournalError):
    """The cursor names an entry that this log has never had."""


class RunFailed(TailraceError):
    """The run failed, or brought no object of the type that it was to bring. `status` is how it ended, `kind` why, for
    programs; `run` is its result, with the `text` so far and what was `not_executed`."""

    def __init__(self, message: str, *, status: str, kind: str = "", run: Any = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.run = run
        self.text: str = run.text if run is not None else ""
        self.not_executed: tuple[Any, ...] = run.not_executed if run is not None else ()


class ForkRefused(TailraceError):
    """No run can begin from this entry of that run. The text says why, and what can be done instead."""


SteerRefusal = Literal[
    "not_steerable", "too_many_steers", "not_taken", "key_used", "steer_committed", "steer_not_found"
]


class SteerRefused(TailraceError):
    """A message for a run that is under way was not accepted, or cannot be taken back. `code` says why."""

    def __init__(self, message: str, code: SteerRefusal) -> None:
        self.code: SteerRefusal = code
        super().__init__(message)


class CorruptLog(JournalError):
    """The log cannot be trusted. The caller stops, reports it and overwrites nothing."""


class PlatformError(TailraceError):
    """A chat platform cannot be reached, or refuses us. `permanent`: a retry fails again until a person changes
    something (a token, a permission)."""

    def __init__(self, message: str, *, platform: str = "", permanent: bool = False) -> None:
        self.platform, self.permanent = platform, permanent
        super().__init__(f"{platform}: {message}" if platform else message)
