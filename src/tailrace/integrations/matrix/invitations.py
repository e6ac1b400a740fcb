"""The rooms that the bot enters: where it is invited to, and what replaces a room that it is in.

Only whom `allow` names and who was paired is followed.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import nio

from tailrace.delivery.port import Sender
from tailrace.integrations.matrix.event_fields import content_of, is_entry
from tailrace.integrations.matrix.notices import REPLACED_ROOM, RoomNotices
from tailrace.messages import JsonObject

log = logging.getLogger("tailrace.integrations.matrix")
Serves: TypeAlias = Callable[[Sender], Awaitable[bool]]


class Invitations:
    def __init__(self, client: nio.AsyncClient, user_id: str, allow: frozenset[str], notices: RoomNotices) -> None:
        self._client = client
        self._user_id = user_id
        self._allow = allow
        self._notices = notices
        self._to_join: set[str] = set()
        self._replacements: set[str] = set()  # of rooms that we were in

    async def follow(self, answer: nio.SyncResponse, serves: Serves) -> None:
        """An invitation is told once; one that could not be followed yet is tried again with the next news."""
        for room_id, invite in answer.rooms.invite.items():
            inviters = _inviters(invite, self._user_id)
            if await self._is_any_served(inviters, serves):
                self._to_join.add(room_id)
                continue
            who = ", ".join(inviters) or "a user"
            log.warning("matrix: %s is not served: the invitation to %s is not followed", who, room_id)
        await self._join()

    async def follow_replacements(self, answer: nio.SyncResponse, serves: Serves) -> None:
        """A room that was upgraded names another one in its place. Where that is only for the invited, the invitation
        comes later."""
        for room_id, room in answer.rooms.join.items():
            for event in [event.source for event in (*room.state, *room.timeline.events)]:
                replacement = _replacement(event)
                if not replacement or replacement in self._client.rooms or replacement in self._replacements:
                    continue
                sender = str(event.get("sender"))
                if await self._is_any_served([sender], serves):
                    self._replacements.add(replacement)
                    self._to_join.add(replacement)
                else:
                    log.warning(
                        "matrix: %s is not served: %s, which replaces %s, is not entered", sender, replacement, room_id
                    )
        await self._join()

    def note_entered(self, answer: nio.SyncResponse) -> None:
        """Says in a room that was just entered that it replaces one that we are in. The room itself names that one: the
        process that was told of the replacement may be gone."""
        for room_id, room in answer.rooms.join.items():
            events = [event.source for event in (*room.state, *room.timeline.events)]
            was_entered = any(is_entry(event, self._user_id) for event in events)
            if was_entered and _replaced(events) in self._client.rooms:
                self._notices.add(room_id, REPLACED_ROOM)

    async def _is_any_served(self, users: list[str], serves: Serves) -> bool:
        return "*" in self._allow or any([user in self._allow or await serves(Sender(user)) for user in users])

    async def _join(self) -> None:
        for room_id in sorted(self._to_join):
            joined = await self._client.join(room_id)
            if isinstance(joined, nio.JoinError) and joined.status_code == "M_LIMIT_EXCEEDED":
                continue
            self._to_join.discard(room_id)
            if isinstance(joined, nio.JoinError) and room_id in self._replacements:
                log.warning("matrix: %s replaces a room that we are in: invite us there (%s)", room_id, joined)
            elif isinstance(joined, nio.JoinError):
                log.warning("an invitation could not be followed: %s", joined)


def _inviters(invite: nio.InviteInfo, user_id: str) -> list[str]:
    members = [event for event in invite.invite_state if isinstance(event, nio.InviteMemberEvent)]
    return sorted({event.sender for event in members if event.state_key == user_id and event.membership == "invite"})


def _replacement(event: JsonObject) -> str:
    """The room that takes the place of the event's own; empty where it is none of these events."""
    if event.get("type") != "m.room.tombstone" or event.get("state_key") != "":
        return ""
    replacement = content_of(event).get("replacement_room")
    return replacement if isinstance(replacement, str) and replacement.startswith("!") else ""


def _replaced(events: list[JsonObject]) -> str:
    """The room in whose place these are the first events of another one; empty where it replaces no room."""
    created = next((content_of(event) for event in events if event.get("type") == "m.room.create"), {})
    predecessor = created.get("predecessor")
    return str(predecessor.get("room_id") or "") if isinstance(predecessor, dict) else ""
