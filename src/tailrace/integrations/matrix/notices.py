"""What the adapter itself says in a room: once for each room and text, when the homeserver's limits allow it."""

from __future__ import annotations

import hashlib

import nio

from tailrace.messages import JsonObject

ENCRYPTED_ROOM = (
    "I cannot read this room: it is encrypted, and that cannot be switched off. Make another room with end-to-end "
    "encryption off, and invite me there."
)
ENCRYPTED_FILE = (
    "I cannot read encrypted files, such as one that is forwarded from an encrypted room. Upload it here anew."
)
# Without it a homeserver takes every name in a text for a mention, and rings again at each edit.
NO_MENTIONS: JsonObject = {"m.mentions": {}}


class RoomNotices:
    """The transaction id is that of the room and the text: after a restart the homeserver knows that it was said."""

    def __init__(self, client: nio.AsyncClient) -> None:
        self._client = client
        self._told: dict[tuple[str, str], bool] = {}  # rooms and texts; False: still to be said

    def add(self, room_id: str, text: str) -> bool:
        """Returns whether it is new."""
        is_new = (room_id, text) not in self._told
        self._told.setdefault((room_id, text), False)
        return is_new

    async def send(self) -> None:
        """Says what is still to be said. What the homeserver does not take for now comes with the next news."""
        for room_id, text in [notice for notice, told in self._told.items() if not told]:
            content = {"msgtype": "m.notice", "body": text, **NO_MENTIONS}
            transaction = hashlib.sha256(f"notice\0{room_id}\0{text}".encode()).hexdigest()[:32]
            reply = await self._client.room_send(room_id, "m.room.message", content, tx_id=transaction)
            if not (isinstance(reply, nio.RoomSendError) and reply.status_code == "M_LIMIT_EXCEEDED"):
                self._told[room_id, text] = True
