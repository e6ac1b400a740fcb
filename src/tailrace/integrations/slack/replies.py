"""What Slack's errors mean for the planner: the SDK's exceptions in, replies out."""

from __future__ import annotations

from slack_sdk.errors import SlackApiError

from tailrace.delivery.port import AnyReply, Failed, Flood, Gone, MarkupRejected, Place, Refused, TooLong, Unknown

DEFAULT_FLOOD_S = 30.0  # where a refusal names no time
_FLOOD = frozenset({"ratelimited", "rate_limited", "message_limit_exceeded"})
_TOO_LONG = frozenset({"msg_too_long", "msg_blocks_too_long", "markdown_text_too_long"})
_STREAM = frozenset({"message_not_in_streaming_state", "streaming_mode_mismatch"})
_OPEN_STREAM = "streaming_state_conflict"  # of an edit: it is possible once the stream has ended, at last by itself
_MESSAGE = frozenset({"message_not_found", "message_not_owned_by_app"})
_THREAD = frozenset(
    {"thread_not_found", "invalid_thread_ts", "cannot_reply_to_message", "restricted_action_thread_locked"}
)
_CHAT = frozenset({"channel_not_found", "is_archived", "not_in_channel", "is_inactive", "user_not_found"})
OLD_TOKEN = frozenset({"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired"})
_MARKUP = frozenset({"invalid_blocks", "invalid_blocks_format", "invalid_chunks", "invalid_attachments"})
# Slack's own reference: with these, some part of the operation may have succeeded before the error.
_UNCERTAIN = frozenset({"fatal_error", "internal_error", "service_unavailable", "request_timeout"})


def code_of(error: SlackApiError) -> str:
    """Slack's word for the error; empty where it is not Slack that answers."""
    data = getattr(error.response, "data", None)
    return str(data.get("error") or "") if isinstance(data, dict) else ""


def status_of(error: SlackApiError) -> int:
    """The HTTP status of the reply; 0 where it has none."""
    return int(getattr(error.response, "status_code", 0) or getattr(error.response, "status", 0))


def reply_to(error: SlackApiError, place: Place, *, markup: bool = True) -> AnyReply:
    """What became of the request that ended so. `markup`: the same can be asked for again without it."""
    code = code_of(error)
    status = status_of(error)
    if status == 429 or code in _FLOOD:
        return Flood(_retry_after_s(error))
    if not code or status >= 500 or code in _UNCERTAIN:
        return Unknown(code or f"HTTP {status}")
    if code in OLD_TOKEN:
        return Failed(f"the token was refused ({code}): set the app's new one and restart", needs_operator=True)
    if code == _OPEN_STREAM:
        return Failed("the message is still a stream")
    if code in _TOO_LONG:
        return TooLong()
    if code in _MARKUP and markup:
        return MarkupRejected()
    if code in _THREAD and place.thread:
        return Gone("thread")
    if code in _STREAM:
        return Gone("stream")
    if code in _MESSAGE:
        return Gone("message")
    return Gone("chat") if code in _CHAT else Refused(code)


def _retry_after_s(error: SlackApiError) -> float:
    headers = getattr(error.response, "headers", None) or {}
    try:
        return float(headers.get("Retry-After", DEFAULT_FLOOD_S))
    except ValueError:
        return DEFAULT_FLOOD_S
