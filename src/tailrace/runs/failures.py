"""The failure of a run: how its log records the reason."""

from __future__ import annotations

import re
from typing import Final

from tailrace.errors import ConfigError, ForkRefused, JournalError, ProviderError, Retryable, TailraceError, TimedOut
from tailrace.events import RunFailure
from tailrace.values.error_texts import says

_WHAT_IS_READ: Final = re.compile(r"\b(?:inputs?|prompt|messages|conversation)\b", re.IGNORECASE)
_ROOM_ASKED: Final = re.compile(
    r"(\d+)(?: tokens)? (?:in|for) the (?:completion|output)|requested (\d+) output tokens|too large: (\d+)|\+ (\d+) >",
    re.IGNORECASE,
)
_THOUSANDS: Final = re.compile(r"(?<=\d),(?=\d{3})")
_ROOM_THERE_IS: Final = re.compile(r"context length (?:is|of) (\d+)|> (\d+)", re.IGNORECASE)
# There a `file` or a `document` is the name of something else.
_OF_TOOLS: Final = re.compile(r"\b(?:schema|functions?|tools?|property|properties|parameters?)\b", re.IGNORECASE)
# As `failure_of` puts it before a message; the name of a part of the request says what was refused.
_PROVIDER_NAME: Final = re.compile(r"(?!(?:input_)?(?:image|file|document|audio)s?(?:_url)?:)[\w-]+: ", re.IGNORECASE)


def failure_of(error: ProviderError) -> RunFailure:
    """A provider's error. The message names the provider: the configured one may have been replaced by a stand-in."""
    status = 504 if isinstance(error, TimedOut) else error.status or 0
    message = str(error)
    if error.provider and error.provider not in message:
        message = f"{error.provider}: {message}"
    retry_after_s = error.retry_after_s if isinstance(error, Retryable) else None
    return RunFailure(error.code or error.kind, message, status=status, retry_after_s=retry_after_s)


def is_too_long(failure: RunFailure) -> bool:
    """Whether the provider has refused the request since it is longer than the model reads."""
    if failure.status not in (400, 413, 422):
        return False
    if failure.status == 413:
        return True
    return says("too_long", f"{failure.kind} {failure.message}") and not _is_of_answer_room(failure)


def _is_of_answer_room(failure: RunFailure) -> bool:
    """Whether a request was refused for the tokens that its answer may have, alone: no shorter conversation helps."""
    message = _THOUSANDS.sub("", failure.message)
    if not says("answer_room", message):
        return False
    if not _WHAT_IS_READ.search(message):  # the kind may say what the message leaves open
        return not says("too_long", failure.kind)
    asked, there_is = _number(_ROOM_ASKED, message), _number(_ROOM_THERE_IS, message)
    return asked is not None and there_is is not None and asked >= there_is


def _number(pattern: re.Pattern[str], message: str) -> int | None:
    found = pattern.search(message)
    return int(next(group for group in found.groups() if group)) if found is not None else None


def is_out_of_quota(failure: RunFailure) -> bool:
    """Whether a request was refused since the account has nothing left to spend, and not for a moment alone."""
    if failure.status == 402 or says("quota", failure.kind):
        return True
    is_transient = bool(failure.retry_after_s) or says("passes", failure.message)
    return not is_transient and says("quota", failure.message)


def is_of_media(failure: RunFailure) -> bool:
    """Whether a request with an image or a file in it was refused for that, as far as the answer tells."""
    return failure.status in (400, 415, 422) or (
        failure.status >= 400 and says("media", f"{failure.kind} {failure.message}")
    )


def is_media_refused(failure: RunFailure) -> bool:
    """Whether the provider says that it has refused the request for an image or a file in it."""
    if is_too_long(failure):
        return False
    named = _PROVIDER_NAME.match(failure.message)
    message = failure.message[named.end() :] if named is not None else failure.message
    words = f"{failure.kind} {message}"
    if failure.status in (400, 415, 422) and not _OF_TOOLS.search(message):
        return says("media", words)
    return failure.status in (400, 404, 415, 422, 500, 501) and says("media_unsupported", words)


def takes_no_images(failure: RunFailure) -> bool:
    """Whether the provider says that this model reads no image, whichever it is."""
    return is_media_refused(failure) and says("no_images", failure.message)


def is_of_policy(failure: RunFailure) -> bool:
    """Whether a request was refused for what it says."""
    return failure.status in (400, 403, 422) and says("policy", f"{failure.kind} {failure.message}")


def unexpected_failure(error: Exception) -> RunFailure:
    """An error that ended a run from outside its own rules."""
    match error:
        case ConfigError():
            return RunFailure("error", str(error), "not_configured")
        case ForkRefused():
            return RunFailure("error", str(error), "not_forkable")
        case JournalError():
            return RunFailure("error", str(error), "journal_unavailable")
        case TailraceError():
            return RunFailure("error", str(error))
        case _:
            return RunFailure("internal", f"{type(error).__name__}: {error}")
