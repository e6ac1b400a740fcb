"""What the people of a workspace are called. Slack's messages have ids alone: a name is asked for, and kept for a time.

The method is `users.info`, with the scope `users:read`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import Any

from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from tailrace.gateway.connection_errors import NO_ANSWER, no_connection
from tailrace.integrations.slack.replies import code_of

log = logging.getLogger("tailrace.gateway")
ASK_S = 1.0  # Slack sends an event again that is not confirmed within three seconds
KEPT_S = 3600.0
RETRY_S = 300.0  # a name that could not be had is asked for again after this
MAX_KEPT = 4096


class UserNames:
    """The names by user id; the oldest are dropped first."""

    def __init__(self) -> None:
        self._names: OrderedDict[str, tuple[str, float]] = OrderedDict()  # with when each is to be asked for again
        self._told: set[str] = set()  # failures that the log has

    async def of(self, client: AsyncWebClient, user_id: str) -> str:
        """Empty where Slack does not tell it soon."""
        now = asyncio.get_running_loop().time()
        name, until = self._names.get(user_id, ("", now))
        if until <= now:
            name = await self._ask(client, user_id)
            self._names.pop(user_id, None)
            self._names[user_id] = (name, now + (KEPT_S if name else RETRY_S))
            if len(self._names) > MAX_KEPT:
                self._names.popitem(last=False)
        return name

    async def _ask(self, client: AsyncWebClient, user_id: str) -> str:
        try:
            async with asyncio.timeout(ASK_S):
                answer = await client.users_info(user=user_id)
        except SlackApiError as exc:
            self._tell(code_of(exc) or "no answer of Slack's")
            return ""
        except NO_ANSWER as exc:
            self._tell(no_connection(exc))
            return ""
        return _shown_name(answer.get("user"))

    def _tell(self, why: str) -> None:
        """Once for each reason: a scope that is missing is missing for everybody."""
        if why not in self._told:
            self._told.add(why)
            advice = ": give the app the scope users:read and install it again" if why == "missing_scope" else ""
            log.warning("slack: the model reads ids in place of people's names (%s)%s", why, advice)


def _shown_name(user: Any) -> str:
    """As clients show it: the name that the person chose, else the full one."""
    match user:
        case {"profile": {"display_name": str(name)}} if name.strip():
            return name
        case {"profile": {"real_name": str(name)}} | {"real_name": str(name)} | {"name": str(name)}:
            return name
        case _:
            return ""
