"""Reads the thread that the bot is called into, page by page, and the names of the people in it.

Slack sends a message alone, and people by their ids. It gives the oldest messages of a thread first
(`conversations.replies`), while the newest say what the question is about.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias

from slack_sdk.errors import SlackApiError

from tailrace.delivery.port import MessageReceived, Place, Quoted
from tailrace.gateway.connection_errors import NO_ANSWER, no_connection
from tailrace.gateway.inbound.quotations import MAX_OF_THREAD, UNREAD_THREAD, quoted_thread
from tailrace.integrations.slack.inbound import BotAccount, file_of, readable
from tailrace.integrations.slack.replies import code_of

log = logging.getLogger("tailrace.gateway")
PAGE = 999  # messages, the most that Slack gives at a time
MAX_PAGES = 10
READ_S = 5.0  # for all of them
PERSON = re.compile(r"<@([UW][A-Z0-9]*)>")
_NEWEST_UNREAD = Quoted(kind="thread", what="newer messages of the thread too, which could not be read")
ThreadMessage: TypeAlias = dict[str, Any]
WebCall: TypeAlias = Callable[..., Awaitable[dict[str, Any]]]
NamesOf: TypeAlias = Callable[[Iterable[str]], Awaitable[Mapping[str, str]]]


async def read_thread(call: WebCall, message: MessageReceived, me: BotAccount, names_of: NamesOf) -> tuple[Quoted, ...]:
    """What others said in the thread before this message; there is less of it after `MAX_PAGES`, `READ_S` or a refusal.
    `call` makes a request of the Web API."""
    found: dict[str, ThreadMessage] = {}  # by `ts`: Slack may give the first message on each page
    has_newest, place = False, message.place
    try:
        async with asyncio.timeout(READ_S):
            has_newest = await _read_pages(call, place, found)
    except SlackApiError as exc:
        log.warning("slack: a thread in %s could not be read (%s)", place.chat, code_of(exc) or "no answer")
    except NO_ANSWER as exc:
        log.warning("slack: a thread in %s could not be read: %s", place.chat, no_connection(exc))
    if not found:
        return (UNREAD_THREAD,)
    # What the bot itself has written there are replies to commands: no question was asked yet.
    others = [one for one in found.values() if one.get("user") != me.user_id and not _only_calls(one, me)]
    above = sorted((one for one in others if str(one.get("ts")) < message.message_id), key=lambda one: str(one["ts"]))
    shown = [*above[:1], *above[1:][-MAX_OF_THREAD:]]
    names = await names_of(str(one.get("user") or "") for one in shown)
    quoted = quoted_thread([_quoted(one, names) for one in above])
    return quoted if has_newest or not quoted else (*quoted, _NEWEST_UNREAD)


def _only_calls(message: ThreadMessage, me: BotAccount) -> bool:
    """Whether it has the bot's name and nothing else."""
    text = str(message.get("text") or "")
    has_more = message.get("files") or message.get("attachments") or me.unnamed(text)
    return me.is_named_in(text) and not has_more


def _quoted(message: ThreadMessage, names: Mapping[str, str]) -> Quoted:
    """A message of the thread. An app's alert may have its text in attachments alone."""
    user = str(message.get("user") or "")
    author = names.get(user) or str(message.get("username") or "") or user or "an app"
    shared = message.get("attachments") or ()
    texts = [message.get("text"), *(one.get("text") or one.get("fallback") for one in shared)]
    text = "\n".join(readable(str(one)) for one in texts if one)
    return Quoted(author, with_names(text, names), tuple(map(file_of, message.get("files") or ())), kind="thread")


def with_names(text: str, names: Mapping[str, str]) -> str:
    """With names beside the ids of people. The id stays: by it an answer can mention the person."""
    return PERSON.sub(lambda found: f"{found[0]} ({names[found[1]]})" if found[1] in names else found[0], text)


async def _read_pages(call: WebCall, place: Place, found: dict[str, ThreadMessage]) -> bool:
    """Adds the messages page by page, so that those are there which came before an error. Whether they are all."""
    cursor = ""
    for _ in range(MAX_PAGES):
        where = {"channel": place.chat, "ts": place.thread} | ({"cursor": cursor} if cursor else {})
        page = await call("conversations.replies", limit=PAGE, **where)
        found.update({str(message.get("ts")): message for message in page.get("messages") or ()})
        cursor = str((page.get("response_metadata") or {}).get("next_cursor") or "")
        if not cursor:
            return True
    log.warning("slack: of a thread in %s the first %d messages were read", place.chat, len(found))
    return False
