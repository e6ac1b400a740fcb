"""Tells a person who asked in a channel where the bot may not write so, in a direct message.

Once for each person and channel, while the process lives. A person who takes no direct messages is not told.
"""

from __future__ import annotations

import logging

from tailrace.delivery.port import Place
from tailrace.gateway.connection_errors import NO_ANSWER
from tailrace.gateway.inbound.recent_ids import RecentIds
from tailrace.integrations.discord.rest import RestClient, RestResponse

log = logging.getLogger("tailrace.integrations.discord")

_MISSING_RIGHTS = frozenset({50001, 50013})  # missing access, missing permissions
USER = "user"  # in a place's `extra`: who asked


class PrivateWord:
    def __init__(self, rest: RestClient) -> None:
        self._rest = rest
        self._told = RecentIds()

    def is_told(self, place: Place) -> None:
        """They have read it otherwise."""
        self._told.add(_key(place))

    async def tell(self, place: Place, answer: RestResponse) -> None:
        """`answer` is what Discord said to a message in the place."""
        error = answer.decoded if not answer.ok else None
        user = place.extra.get(USER)
        if error is None or error.code not in _MISSING_RIGHTS or not user or not self._told.add(_key(place)):
            return
        text = (
            f"I may not write in <#{place.thread or place.chat}>, so my answer is not shown there. Ask me here, or ask "
        )
        text += "an admin of that server to give me *Send Messages* (in a thread *Send Messages in Threads*)."
        try:
            opened = await self._rest.request("POST", "/users/@me/channels", {"recipient_id": user})
            channel = opened.decoded if opened.ok else None
            if channel is not None and channel.id:
                opened = await self._rest.request("POST", f"/channels/{channel.id}/messages", {"content": text})
        except NO_ANSWER as exc:
            log.info("%s could not be told in private that nothing can be written there: %s", place.key, exc)
            return
        if not opened.ok:
            log.info("%s: who asked takes no direct message: HTTP %d", place.key, opened.status)


def _key(place: Place) -> str:
    return f"{place.key}:{place.extra.get(USER, '')}"
