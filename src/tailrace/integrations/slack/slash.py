"""Slash commands, which Slack shows only to the person who typed them: the private answer, and the question.

A question behind a slash command is shown in its channel, and has a thread and a conversation of its own. Where nothing
can be written, the person is told in private below the command.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from tailrace.delivery import port
from tailrace.errors import PlatformError
from tailrace.integrations.slack.inbound import shown_question

log = logging.getLogger("tailrace.gateway")
MAX_REMEMBERED = 256  # commands, questions, threads
LAST_WRITE_S = 2.0  # for a request that outlives its task
STRANGER = (
    "I do not know you yet, so I do not answer here. Write me a direct message: I tell you there who can let you in."
)
LATE = "This takes a moment. If your question does not appear here with an answer below it, ask again."


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


class SlashQuestions:
    """`find` looks for our message with a key; `tell` tells the person of a place something in private."""

    def __init__(
        self,
        perform: Callable[[port.Place, port.AnyAction], Awaitable[port.AnyReply]],
        find: Callable[[port.Place, str], Awaitable[str]],
        name_of: Callable[[str], Awaitable[str]],
        tell: Callable[[port.Place, str], Awaitable[None]],
    ) -> None:
        self._perform, self._find, self._name_of, self._tell = perform, find, name_of, tell
        self._taken: dict[str, str] = {}  # by update, which may come again: the message that shows it

    async def take(self, question: port.MessageReceived, inbox: port.Inbox) -> None:
        """Shows the question and puts it as a message of its own thread. A question that cannot be shown is not taken:
        without a thread it would join one conversation with everybody's questions in that channel. One that comes
        again, perhaps to another process, is shown already."""
        key = question.update_id
        found, name = await asyncio.gather(self._find(question.place, key), self._name_of(question.sender.id))
        shown_before = self._taken.get(key) or found
        ts = shown_before or await self._show(question, name or question.sender.name)
        if not ts:
            return
        place = replace(question.place, thread=ts)
        try:
            sender = port.Sender(question.sender.id, name)  # as of a message: people do not know the login name
            await inbox.put(replace(question, place=place, sender=sender, message_id=ts))
        except PlatformError:  # it was certainly not taken; after any other failure the next try finds it shown
            if not shown_before:  # else it may have been taken before, and be answered below
                await self._take_back(place, ts)
            raise
        remember(self._taken, key, ts)

    async def _take_back(self, place: port.Place, ts: str) -> None:
        """Deletes a question that was not taken. Shielded: the process may be about to end."""
        deleting = asyncio.ensure_future(self._perform(place, port.Delete(ts)))
        try:
            await asyncio.wait([deleting])
        finally:
            await asyncio.wait([deleting], timeout=LAST_WRITE_S)
            deleting.cancel()

    async def _show(self, question: port.MessageReceived, name: str) -> str:
        """The message that shows the question; empty where there is none, which the person was told."""
        place, shown = question.place, port.Send(question.update_id, shown_question(question, name), markup=False)
        match await self._perform(place, shown):
            case port.Sent(message_id=ts):
                return ts
            case port.Gone(what="chat"):  # logged and told already
                return ""
            case port.Unknown() if ts := await self._find(place, shown.key):
                return ts
            case reply:
                log.warning("slack: a question could not be shown in %s: %s", place.chat, reason_of(reply))
                await self._tell(place, why_not_taken(reply))
                return ""


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


def why_not_taken(reply: port.AnyReply) -> str:
    """Why a question that Slack would not show was not taken, and what to do."""
    if isinstance(reply, port.Refused):
        return f"I cannot write here ({reply.reason}), so I cannot answer here. Ask me in a direct message."
    return "Your question could not be shown here just now, so I have not taken it. Ask again in a moment."


def reason_of(reply: port.AnyReply) -> str:
    """In words for the log."""
    match reply:
        case port.Refused(reason=reason) | port.Failed(reason=reason) | port.Unknown(reason=reason) if reason:
            return "no answer in time" if reason == TimeoutError.__name__ else reason
        case _:
            return type(reply).__name__
