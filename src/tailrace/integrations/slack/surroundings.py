"""What a message in a Slack channel refers to, for the model: the thread that it stands in, and who is mentioned.

Slack sends a message alone, and people by their ids. The thread is read once, when somebody calls the bot into one that
it has no part in: later it has what is said to it. What others wrote is a quotation, line by line. Knows no HTTP.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from msgspec.structs import replace

from tailrace.app.slash_commands import command_in, is_unknown_command
from tailrace.delivery.port import MessageReceived, Place
from tailrace.delivery.speakers import author_name, one_line_name
from tailrace.delivery.thread_quotations import UNREAD, first_and_newest, left_out_words, quoted_message
from tailrace.gateway.inbound import is_yes_or_no
from tailrace.integrations.slack.inbound import BotAccount, readable
from tailrace.integrations.slack.slash_commands import remember

log = logging.getLogger("tailrace.gateway")
MAX_NAMES = 20  # that are asked for at a time
NEWEST_UNREAD = "[in reply to newer messages of the thread too, which could not be read]"
_PERSON = re.compile(r"<@([UW][A-Z0-9]*)>")
ThreadMessage = dict[str, Any]


class ReadThread(NamedTuple):
    messages: list[ThreadMessage]  # the oldest first
    has_newest: bool  # else there are more of them


class Surroundings:
    """Adds to messages what they refer to.

    `read_thread` gives what there is of a place's thread, None where Slack does not soon; `name_of` a person's name,
    empty where Slack does not tell it."""

    def __init__(
        self,
        read_thread: Callable[[Place], Awaitable[ReadThread | None]],
        name_of: Callable[[str], Awaitable[str]],
        *,
        tells_names: bool = True,
    ) -> None:
        self._read_thread, self._name_of, self._tells_names = read_thread, name_of, tells_names
        self._above: dict[str, str] = {}  # what stands above, by update: each mention comes twice
        self._joined: dict[str, str] = {}  # threads that were read or begun by the bot; the oldest go first

    def join(self, place: Place) -> None:
        """The conversation has what stands in this thread: it is not read any more."""
        if place.thread and place.kind != "private":
            remember(self._joined, _thread_key(place), "")

    async def add_to(
        self, message: MessageReceived, me: BotAccount, has_conversation: Callable[[Place], Awaitable[bool]]
    ) -> MessageReceived:
        """The message below the thread that it calls the bot into, with names beside the ids of people. A word that
        agrees or refuses stays as it is where the thread is not known: a question for approval may be open in it.
        `has_conversation`: whether something was asked there before."""
        if command_in(message.text) or is_unknown_command(message.text):
            return message
        mentioned = _PERSON.findall(message.text)
        above = ""
        if _calls_into_thread(message):
            if message.update_id not in self._above and await has_conversation(message.place):
                self.join(message.place)
            above = await self._text_above(message, me, mentioned)
        if above == UNREAD and is_yes_or_no(message.text):
            return message
        text = f"{above}\n\n{message.text}" if above else message.text
        names = await self._names(mentioned)
        return replace(message, text=_with_names(text, names))

    async def _text_above(self, message: MessageReceived, me: BotAccount, mentioned: list[str]) -> str:
        key = message.update_id
        if key not in self._above and _thread_key(message.place) not in self._joined:
            remember(self._above, key, await self._quoted_thread(message, me, mentioned))
        return self._above.get(key, "")

    async def _quoted_thread(self, message: MessageReceived, me: BotAccount, mentioned: list[str]) -> str:
        """`mentioned`: whose names are asked for together with those of the authors, since everything waits for it."""
        thread = await self._read_thread(message.place)
        if thread is None:
            return UNREAD
        # What the bot itself has written there are replies to commands: no question was asked yet.
        others = [one for one in thread.messages if one.get("user") != me.user_id and not _only_calls(one, me)]
        above = [one for one in others if str(one.get("ts")) < message.message_id]
        shown = first_and_newest(above)
        names = await self._names([*mentioned, *(str(one.get("user") or "") for one in shown)])
        quotations = [_quotation(one, names) for one in shown]
        if left_out := len(above) - len(shown):
            quotations.insert(1, left_out_words(left_out))
        if quotations and not thread.has_newest:
            quotations.append(NEWEST_UNREAD)
        self.join(message.place)  # not before: what is cancelled on the way comes again
        return "\n\n".join(quotations)

    async def _names(self, ids: Iterable[str]) -> dict[str, str]:
        """The names of people by their ids, where names are told and Slack has them."""
        asked = list(dict.fromkeys(filter(None, ids)))[:MAX_NAMES] if self._tells_names else []
        found = await asyncio.gather(*map(self._name_of, asked))
        return {one: name for one, given in zip(asked, found, strict=True) if (name := one_line_name(given))}


def may_be_answered(message: MessageReceived) -> bool:
    """Whether it is addressed to the bot, or stands in a thread that the bot may have part in."""
    return message.addressed or message.place.thread != message.message_id


def _calls_into_thread(message: MessageReceived) -> bool:
    place = message.place
    return place.kind != "private" and message.addressed and place.thread not in ("", message.message_id)


def _only_calls(message: ThreadMessage, me: BotAccount) -> bool:
    """Whether it has the bot's name and nothing else."""
    text = str(message.get("text") or "")
    has_more = message.get("files") or message.get("attachments") or me.unnamed(text)
    return me.is_named_in(text) and not has_more


def _thread_key(place: Place) -> str:
    return f"{place.chat}:{place.thread}"


def _quotation(message: ThreadMessage, names: dict[str, str]) -> str:
    """A message of the thread. An app's alert may have its text in attachments alone."""
    user = str(message.get("user") or "")
    author = author_name(names.get(user) or str(message.get("username") or "")) or user or "an app"
    shared = message.get("attachments") or ()
    texts = [message.get("text"), *(one.get("text") or one.get("fallback") for one in shared)]
    text = "\n".join(readable(str(one)) for one in texts if one)
    files = [str(one.get("name") or "without a name") for one in message.get("files") or ()]
    return quoted_message(author, text, files)


def _with_names(text: str, names: dict[str, str]) -> str:
    """The id stays: by it an answer can mention the person."""
    return _PERSON.sub(lambda one: f"{one[0]} ({names[one[1]]})" if one[1] in names else one[0], text)
