"""Questions that are asked by a slash command, which Slack shows to nobody: each is shown, and has a thread and a
conversation of its own as any other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from tailrace.delivery import port
from tailrace.errors import PlatformError
from tailrace.integrations.slack.inbound import shown_question
from tailrace.integrations.slack.slash_commands import reason_of, remember, why_not_taken

log = logging.getLogger("tailrace.gateway")
LAST_WRITE_S = 2.0  # for a request that outlives its task


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
        """Where it cannot be shown it is not taken: without a thread it would be part of one conversation with
        everybody's questions in that channel.

        It comes again where it was not confirmed, perhaps to another process: then it is shown already."""
        key = question.update_id
        found, name = await asyncio.gather(self._find(question.place, key), self._name_of(question.sender.id))
        shown_before = self._taken.get(key) or found
        ts = shown_before or await self._show(question, name or question.sender.name)
        if not ts:
            return
        place = msgspec.structs.replace(question.place, thread=ts)
        try:
            sender = port.Sender(question.sender.id, name)  # as of a message: the login name is not what people know
            await inbox.put(msgspec.structs.replace(question, place=place, sender=sender, message_id=ts))
        except PlatformError:  # it was certainly not taken: of any other failure the next try finds it shown
            if not shown_before:  # else it may have been taken before, and be answered below
                await self._take_back(place, ts)
            raise
        remember(self._taken, key, ts)

    async def _take_back(self, place: port.Place, ts: str) -> None:
        """Deletes a question that was not taken. The process may be about to end, and cancel this: the request is made
        all the same."""
        deleting = asyncio.ensure_future(self._perform(place, port.Delete(ts)))
        try:
            await asyncio.wait([deleting])
        finally:
            await asyncio.wait([deleting], timeout=LAST_WRITE_S)
            deleting.cancel()

    async def _show(self, question: port.MessageReceived, name: str) -> str:
        """The message that shows the question; empty where there is none, of which the person was told."""
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
