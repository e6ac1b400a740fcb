"""What Slack is sent: blocks, chunks of a stream, buttons. Pure: values in, the bodies of requests out.

A `markdown` block and a stream's `markdown_text` read Markdown itself, tables and every heading included.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Any

from tailrace.delivery import port

MARK = "tailrace_message"  # the metadata by which a message of ours is found again
_STATUSES = {"running": "in_progress", "done": "complete", "failed": "error"}
_NOTIFIED = 8_000  # characters for notifications: escaped at most five times as many, the 40,000 that Slack takes
_JOINER = "\u2060"  # a character without width
# `<!channel>` calls everyone in the channel, `<!subteam^S1>` a group of people. A stream's pieces may cut it anywhere.
_CALLS = ("channel", "here", "everyone", "group", "subteam")
_BEGUN = sorted({word[:length] for word in _CALLS for length in range(len(word))}, reverse=True)
_CALL = re.compile(rf"(?:\A|(?<=<))(?=!(?:{'|'.join(_CALLS)}|(?:{'|'.join(_BEGUN)})\Z))")


def without_calls(text: str) -> str:
    """A text, or the next piece of one, that looks the same and mentions no one: the model notifies no person."""
    return _CALL.sub(_JOINER, text) if "!" in text else text


def message_body(action: port.Send | port.Edit) -> dict[str, Any]:
    """Blocks, and the text for notifications. Without markup as rich text, which is shown character by character."""
    if action.markup:
        block: dict[str, Any] = {"type": "markdown", "text": without_calls(action.text)}
    else:
        section = {"type": "rich_text_section", "elements": [{"type": "text", "text": action.text}]}
        block = {"type": "rich_text", "elements": [section]}
    blocks = [block, _actions(action.buttons)] if action.buttons else [block]
    return {"blocks": blocks, "text": html.escape(action.text[:_NOTIFIED], quote=False)}


def stream_body(text: str, cards: Sequence[port.Card]) -> dict[str, Any]:
    """Always as chunks: a stream that was begun so takes no plain `markdown_text` afterwards."""
    chunks = [{"type": "markdown_text", "text": without_calls(text)}] if text else []
    chunks += [
        {"type": "task_update", "id": card.id, "title": card.title, "status": _STATUSES[card.status]} for card in cards
    ]
    return {"chunks": chunks} if chunks else {}


def metadata(key: str = "") -> dict[str, Any]:
    return {"metadata": {"event_type": MARK, "event_payload": {"key": key} if key else {}}}


def key_of(message: dict[str, Any]) -> str | None:
    """The key in a message's metadata, empty where that has none; None for a message without metadata of ours."""
    mark = message.get("metadata") or {}
    if mark.get("event_type") != MARK:
        return None
    return str((mark.get("event_payload") or {}).get("key") or "")


def _actions(buttons: Sequence[port.Button]) -> dict[str, Any]:
    return {
        "type": "actions",
        "elements": [
            {
                "type": "button",
                "text": {"type": "plain_text", "text": button.label[:75]},
                "value": button.value,
                "action_id": f"tailrace_{number}",
            }
            for number, button in enumerate(buttons)
        ],
    }
