"""Slash commands, which Slack shows only to the person who typed them: the private answer.

Slack does not show a question that is written after a slash command: we ask the person to send it as a message.
"""

from __future__ import annotations

from typing import Any

from tailrace.delivery import port

MAX_REMEMBERED = 256  # commands
NO_QUESTION = "Write your question as a message: mention me here, or ask in a direct message."
STRANGER = (
    "I do not know you yet, so I do not answer here. Write me a direct message: I tell you there who can let you in."
)


def remember(known: dict[str, str], key: str, value: str) -> None:
    known[key] = value
    if len(known) > MAX_REMEMBERED:
        known.pop(next(iter(known)))


class ResponseUrls:
    """Where each person can be answered in private in each channel: at the address of their newest command there."""

    def __init__(self) -> None:
        self._urls: dict[str, str] = {}

    def keep(self, command: dict[str, Any]) -> None:
        """`command`: the payload of the slash command."""
        if url := command.get("response_url"):
            remember(self._urls, f"{command.get('channel_id')}:{command.get('user_id')}", str(url))

    def take(self, place: port.Place) -> str:
        """The address of the command whose answer belongs there, once; empty where none is known. A command is never
        typed in a thread."""
        return "" if place.thread else self._urls.pop(f"{place.chat}:{place.extra.get('user', '')}", "")


# ── words ────────────────────────────────────────────────────────────────────────────────────────────────────


def why_not_here(code: str, place: port.Place, bot: str) -> str:
    """Why a command is not answered where it was typed, and what to do. Slack offers a slash command in every channel,
    also in one without the bot."""
    match code:
        case "is_archived":
            return (
                "This channel is archived, so I cannot answer here. Ask me in another channel or in a direct message."
            )
        case "not_in_channel" | "channel_not_found" if place.kind == "private":  # of two other people
            return "I am not in this conversation, so I cannot answer here. Ask me in a direct message."
        case "not_in_channel" | "channel_not_found":
            return f"I am not in this channel, so I cannot answer here. Type `/invite @{bot}`, then ask again."
        case _:
            return f"I cannot write here ({code}). Ask me in another channel or in a direct message."
