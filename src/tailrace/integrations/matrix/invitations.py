"""The rooms that the bot joins: those to which an allowed or paired user invites it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import nio

from tailrace.delivery.port import Sender

log = logging.getLogger("tailrace.integrations.matrix")
Serves: TypeAlias = Callable[[Sender], Awaitable[bool]]


class Invitations:
    def __init__(self, client: nio.AsyncClient, user_id: str, allow: frozenset[str]) -> None:
        self._client = client
        self._user_id = user_id
        self._allow = allow
        self._to_join: set[str] = set()

    async def follow(self, answer: nio.SyncResponse, serves: Serves) -> None:
        """Joins the rooms of allowed inviters. The server sends an invitation once: a failed join is tried again at the
        next sync."""
        for room_id, invite in answer.rooms.invite.items():
            inviters = _inviters(invite, self._user_id)
            if await self._is_any_served(inviters, serves):
                self._to_join.add(room_id)
                continue
            who = ", ".join(inviters) or "a user"
            log.warning("matrix: %s is not served: the invitation to %s is not followed", who, room_id)
        await self._join()

    async def _is_any_served(self, users: list[str], serves: Serves) -> bool:
        return "*" in self._allow or any([user in self._allow or await serves(Sender(user)) for user in users])

    async def _join(self) -> None:
        for room_id in sorted(self._to_join):
            joined = await self._client.join(room_id)
            if isinstance(joined, nio.JoinError) and joined.status_code == "M_LIMIT_EXCEEDED":
                continue
            self._to_join.discard(room_id)
            if isinstance(joined, nio.JoinError):
                log.warning("an invitation could not be followed: %s", joined)


def _inviters(invite: nio.InviteInfo, user_id: str) -> list[str]:
    members = [event for event in invite.invite_state if isinstance(event, nio.InviteMemberEvent)]
    return sorted({event.sender for event in members if event.state_key == user_id and event.membership == "invite"})
