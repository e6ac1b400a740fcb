"""Reads the thread that the bot is called into, page by page.

Slack gives the oldest messages first (`conversations.replies`), while the newest say what the question is about.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from slack_sdk.errors import SlackApiError

from tailrace.delivery.port import Place
from tailrace.gateway.connection_errors import NO_ANSWER, no_connection
from tailrace.integrations.slack.replies import code_of
from tailrace.integrations.slack.surroundings import ReadThread, ThreadMessage

log = logging.getLogger("tailrace.gateway")
PAGE = 999  # messages, the most that Slack gives at a time
MAX_PAGES = 10
READ_S = 5.0  # for all of them


async def read_thread(call: Callable[..., Awaitable[dict[str, Any]]], place: Place) -> ReadThread | None:
    """What there is of the thread after `MAX_PAGES`, `READ_S` or a refusal; None where that is nothing. `call` makes a
    request of the Web API."""
    found: dict[str, ThreadMessage] = {}  # by `ts`: Slack may give the first message on each page
    has_newest = False
    try:
        async with asyncio.timeout(READ_S):
            has_newest = await _read_pages(call, place, found)
    except SlackApiError as exc:
        log.warning("slack: a thread in %s could not be read (%s)", place.chat, code_of(exc) or "no answer")
    except NO_ANSWER as exc:
        log.warning("slack: a thread in %s could not be read: %s", place.chat, no_connection(exc))
    return ReadThread([found[ts] for ts in sorted(found)], has_newest) if found else None


async def _read_pages(
    call: Callable[..., Awaitable[dict[str, Any]]], place: Place, found: dict[str, ThreadMessage]
) -> bool:
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
