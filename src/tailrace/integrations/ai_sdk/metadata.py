"""The metadata of a UI message: which run it is of, how it ended, what it used. Names as the AI SDK has them. Pure."""

from __future__ import annotations

from typing import Final

from tailrace.events import RunFinished, RunStarted
from tailrace.messages import JsonObject

# Of a stream that ends with a question: it goes on when the user has answered.
WAITING: Final[JsonObject] = {"status": "waiting", "finishReason": "tool-calls"}
_FINISH_REASONS: Final = {"length": "length", "cut": "length", "limit": "length", "filter": "content-filter"}


def start_metadata(run_id: str, started: RunStarted) -> JsonObject:
    metadata: JsonObject = {"runId": run_id, "chatId": started.session, "status": "running"}
    if started.at:
        metadata["createdAt"] = _milliseconds(started.at)
    return metadata


def end_metadata(finished: RunFinished, tokens: JsonObject, model: str, reason: str) -> JsonObject:
    """`tokens` are of all runs that the message is made of."""
    metadata: JsonObject = {"status": finished.status, "finishReason": reason, "model": model, "usage": tokens}
    if finished.at:
        metadata["finishedAt"] = _milliseconds(finished.at)
    if finished.error is not None:
        metadata["error"] = {"kind": finished.error.kind, "message": finished.error.message}
    return metadata


def finish_reason(finished: RunFinished, stop: str, calls_client: bool) -> str:
    """In the words of the AI SDK. `stop`: how the model's last answer ended. `calls_client`: it calls for tools of the
    client's own."""
    match finished.status:
        case "failed":
            return "error"
        case "stopped":
            return "other"
        case "completed" if calls_client:
            return "tool-calls"
        case "completed" | "incomplete":
            return _FINISH_REASONS.get(stop, "stop" if finished.status == "completed" else "other")


def _milliseconds(seconds: float) -> int:
    """As JavaScript counts time."""
    return int(seconds * 1000)
