"""Slash commands, which Slack shows to nobody but the person who typed them: where and how that person is told in
private why there is no answer. No I/O."""

from __future__ import annotations

from typing import Any

from tailrace.delivery.port import AnyReply, Failed, Place, Refused, Unknown

MAX_REMEMBERED = 256  # commands
STRANGER = (
    "I do not know you yet, so I do not answer here. Write me a direct message: I tell you there who can let you in."
)

LATE = "This takes a moment. If your question does not appear here with an answer below it, ask again."


class ResponseUrls:
    """Where each person can be answered in private in each channel: by the newest command that they typed there."""

    def __init__(self) -> None:
        self._urls: dict[str, str] = {}

    def keep(self, command: dict[str, Any]) -> None:
        """`command`: the payload of the slash command."""
        if url := command.get("response_url"):
            remember(self._urls, f"{command.get('channel_id')}:{command.get('user_id')}", str(url))

    def take(self, place: Place) -> str:
        """The address of the command whose answer belongs there, once; empty where none is known. A command is never
        typed in a thread."""
        return "" if place.thread else self._urls.pop(f"{place.chat}:{place.extra.get('user', '')}", "")


def why_not_here(code: str, place: Place, bot: str) -> str:
    """Why nothing can be written there, and what to do, by Slack's `code` for it. Slack offers a slash command in every
    channel, also in one that the bot is no member of."""
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


def why_not_taken(reply: AnyReply) -> str:
    """Why a question was not taken that Slack would not show, and what to do."""
    if isinstance(reply, Refused):
        return f"I cannot write here ({reply.reason}), so I cannot answer here. Ask me in a direct message."
    return "Your question could not be shown here just now, so I have not taken it. Ask again in a moment."


def reason_of(reply: AnyReply) -> str:
    """In words for the log."""
    match reply:
        case Refused(reason=reason) | Failed(reason=reason) | Unknown(reason=reason) if reason:
            return "no answer in time" if reason == TimeoutError.__name__ else reason
        case _:
            return type(reply).__name__


def remember(known: dict[str, str], key: str, value: str) -> None:
    known[key] = value
    if len(known) > MAX_REMEMBERED:
        known.pop(next(iter(known)))
