"""A turn's end as the editor gets it: a stop reason, or an error where no stop reason is true. Pure."""

from __future__ import annotations

from typing import Final

from acp.schema import PromptResponse, StopReason, Usage

from tailrace.events import RunFinished
from tailrace.integrations.acp.log_to_updates import LogToUpdates

# How an answer ended, as `MessageRecorded.stop` has it.
_REASONS: Final[dict[str, StopReason]] = {"length": "max_tokens", "filter": "refusal", "limit": "max_turn_requests"}


def stop_reason(finished: RunFinished, stop: str, text: str) -> StopReason | None:
    """None where the turn failed, or broke off: no reason of the protocol says that."""
    match finished.status:
        case "completed":
            return "end_turn"
        case "stopped":
            return "cancelled"
        case "failed":
            return None
        case "incomplete":
            if stop == "limit" and "(agent.max_tokens)" in text:
                return "max_tokens"
            return _REASONS.get(stop)


def failure_text(finished: RunFinished) -> str:
    return finished.error.message if finished.error is not None else f"the turn is {finished.status}"


def prompt_response(log: LogToUpdates) -> PromptResponse | None:
    """The answer to `session/prompt`; None where an error is."""
    finished = log.finished
    if finished is None or (reason := stop_reason(finished, log.stop, log.last_text)) is None:
        return None
    usage = finished.usage
    return PromptResponse(
        stop_reason=reason,
        usage=Usage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            total_tokens=usage.input_tokens + usage.output_tokens,
            thought_tokens=usage.reasoning_tokens,
            cached_read_tokens=usage.cache_read_tokens,
            cached_write_tokens=usage.cache_write_tokens,
        ),
    )
