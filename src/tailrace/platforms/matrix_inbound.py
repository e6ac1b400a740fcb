"""What a Matrix sync says: messages for us, and rooms that we are invited to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import nio

from tailrace.delivery.port import Attachment, MessageReceived, Place, Sender, Update
from tailrace.messages import JsonObject

_FILES = ("m.image", "m.file", "m.audio", "m.video")


class Rooms:
    """The rooms that the bot is in. It joins when somebody who is allowed invites it."""

    def __init__(self, client: nio.AsyncClient, user_id: str, allow: frozenset[str]) -> None:
        self._client = client
        self._user_id = user_id
        self._name = user_id.removeprefix("@").partition(":")[0]
        self._allow = allow

    async def join_invited(self, answer: nio.SyncResponse) -> None:
        for room_id, invite in answer.rooms.invite.items():
            inviter = next(
                (
                    event.sender
                    for event in invite.invite_state
                    if isinstance(event, nio.InviteMemberEvent) and event.state_key == self._user_id
                ),
                "",
            )
            if "*" in self._allow or inviter in self._allow:
                await self._client.join(room_id)

    def updates(self, answer: nio.SyncResponse) -> Iterator[Update]:
        for room_id, room in answer.rooms.join.items():
            for event in room.timeline.events:
                if update := self._update(room_id, event.source):
                    yield update

    def _update(self, room_id: str, event: JsonObject) -> Update | None:
        content: Any = event.get("content")
        if event.get("type") != "m.room.message" or event.get("sender") == self._user_id:
            return None
        if not isinstance(content, dict) or content.get("msgtype") == "m.notice":
            return None  # notices are bots' talk: answering them is how two bots never stop
        relation = content.get("m.relates_to")
        relation = relation if isinstance(relation, dict) else {}
        if relation.get("rel_type") == "m.replace":
            return None
        text = str(content.get("body") or "")
        private = self._is_private(room_id)
        attachment = _attachment(content)
        return MessageReceived(
            update_id=str(event.get("event_id")),
            place=Place(
                platform="matrix",
                chat=room_id,
                thread=str(relation.get("event_id", "")) if relation.get("rel_type") == "m.thread" else "",
                kind="private" if private else "group",
            ),
            sender=Sender(str(event.get("sender")), str(event.get("sender"))),
            text="" if attachment else self._without_mention(text),
            attachments=(attachment,) if attachment else (),
            addressed=private or self._addressed(text, content),
            message_id=str(event.get("event_id")),
        )

    def _is_private(self, room_id: str) -> bool:
        room = self._client.rooms.get(room_id)
        return room is None or room.member_count <= 2

    def _addressed(self, text: str, content: JsonObject) -> bool:
        mentions = content.get("m.mentions")
        users = mentions.get("user_ids") if isinstance(mentions, dict) else None
        if isinstance(users, list) and self._user_id in users:
            return True
        words = text.lower()
        return self._user_id.lower() in words or words.startswith((f"{self._name.lower()}:", "/", "!"))

    def _without_mention(self, text: str) -> str:
        for name in (self._user_id, self._name):
            for ending in (":", ",", ""):
                if text.lower().startswith(f"{name}{ending}".lower()):
                    return text[len(name) + len(ending) :].lstrip()
        return text


def _attachment(content: JsonObject) -> Attachment | None:
    if content.get("msgtype") not in _FILES or not str(content.get("url", "")).startswith("mxc://"):
        return None
    info = content.get("info")
    info = info if isinstance(info, dict) else {}
    size = info.get("size")
    return Attachment(
        ref=str(content["url"]),
        name=str(content.get("filename") or content.get("body") or "file"),
        media_type=str(info.get("mimetype") or ""),
        size_bytes=size if isinstance(size, int) else None,
    )
