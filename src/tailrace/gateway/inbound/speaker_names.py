"""What people of one platform are called, in notices of the bot and for the model."""

from __future__ import annotations

from tailrace.config.sections import TellNames
from tailrace.delivery.planning.presenter import code_span
from tailrace.delivery.port import MessageReceived, Platform, Sender
from tailrace.events import ApprovalAsked
from tailrace.events.speakers import ELSEWHERE, SpokenBy, one_line_name


class SpeakerNames:
    def __init__(self, platform: Platform, tell: TellNames) -> None:
        self._platform = platform
        self._tell = tell

    async def spoken_by(self, received: MessageReceived) -> SpokenBy:
        """Who wrote the message; empty in a private chat, where there is one person."""
        if received.place.kind == "private" or self._tell == "none":
            return SpokenBy()
        return SpokenBy(received.sender.id, await self.name_of(received.sender))

    async def name_of(self, sender: Sender) -> str:
        """What the platform calls the person, in one line; empty where it does not say."""
        return one_line_name(sender.name) or one_line_name(await self._platform.display_name(sender))

    async def name_of_id(self, person: str) -> str:
        return await self.name_of(Sender(person))

    async def requester_of(self, asked: ApprovalAsked) -> str:
        """Who alone may answer, in words for a chat."""
        return await self.called(asked.requester, asked.requester_name)

    async def called(self, requester: str, name: str = "") -> str:
        """Who asked, in words for a chat. `name`: where it is known."""
        platform, _, person = requester.partition(":")
        if not name and platform == self._platform.name:
            name = await self.name_of(Sender(person)) or "the person who asked for it"
        name = name or ELSEWHERE.get(requester) or requester
        return name if name.replace(" ", "").isalnum() else code_span(name)
