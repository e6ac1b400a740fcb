"""Answers to interactions, within the three seconds after which Discord says "the application did not respond".

An interaction whose handling takes longer, as while storage is slow, or that waits behind another event, is deferred:
its answer follows once it is known. Never knows what the answer says.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from tailrace.gateway.connection_errors import NO_ANSWER
from tailrace.integrations.discord.library import discord
from tailrace.integrations.discord.rest import RestClient, RestResponse

log = logging.getLogger("tailrace.integrations.discord")

DEFER_S = 2.0  # since it arrived; the request takes its time too
SUPPRESS_EMBEDS, EPHEMERAL = 1 << 2, 1 << 6  # message flags
NO_MENTIONS: dict[str, list[str]] = {"parse": []}  # a text sends no notification, whatever names it has
_ANSWER, _ANSWER_LATER, _UPDATE_LATER = 4, 5, 6  # types of answers to an interaction
_ACKNOWLEDGED = 40060  # the error code of a second answer


class Confirmation:
    """Of one interaction. `flags` are those of the message that answers a command."""

    def __init__(self, rest: RestClient, interaction: discord.Interaction, flags: int) -> None:
        self._rest = rest
        self._interaction = interaction
        self._flags = flags
        self._is_command = interaction.type == discord.InteractionType.application_command
        self._one_at_a_time = asyncio.Lock()
        self._is_answered = self._is_deferred = False

    async def defer_when_late(self) -> None:
        await asyncio.sleep(DEFER_S)
        async with self._one_at_a_time:
            if not self._is_answered:
                answer = await self._call_back(
                    {"type": _ANSWER_LATER, "data": {"flags": self._flags}}
                    if self._is_command
                    else {"type": _UPDATE_LATER}
                )
                self._is_deferred = answer is not None and (answer.ok or _is_acknowledged(answer))

    async def answer(self, content: str | None, flags: int) -> None:
        """None: there is nothing to say, the interaction was heard."""
        told = {"content": content, "flags": flags, "allowed_mentions": NO_MENTIONS}
        webhook = f"/webhooks/{self._interaction.application_id}/{self._interaction.token}"
        async with self._one_at_a_time:
            self._is_answered = True
            if not self._is_deferred:
                body = {"type": _UPDATE_LATER} if content is None else {"type": _ANSWER, "data": told}
                answer = await self._call_back(body)
                # One that was not handled to its end is heard again, and was perhaps deferred the first time.
                self._is_deferred = answer is not None and _is_acknowledged(answer)
            if not self._is_deferred or content is None:
                return
            if self._is_command:
                await self._request("PATCH", f"{webhook}/messages/@original", told)
            else:
                await self._request("POST", webhook, told)

    async def _call_back(self, body: dict[str, Any]) -> RestResponse | None:
        path = f"/interactions/{self._interaction.id}/{self._interaction.token}/callback"
        return await self._request("POST", path, body)

    async def _request(self, method: str, path: str, body: dict[str, Any]) -> RestResponse | None:
        """None: Discord has not answered."""
        try:
            answer = await self._rest.request(method, path, body)
        except NO_ANSWER as exc:
            log.info("an interaction could not be confirmed: %s", exc)
            return None
        if not answer.ok and not _is_acknowledged(answer):
            log.info("an interaction could not be confirmed: HTTP %d", answer.status)
        return answer


def _is_acknowledged(answer: RestResponse) -> bool:
    error = answer.decoded if not answer.ok else None
    return error is not None and error.code == _ACKNOWLEDGED
