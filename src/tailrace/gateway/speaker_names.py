"""Says whose a message of one platform is, where several people share a conversation.

Private chats stay as they are. `app.chat_speakers` keeps who has spoken, `delivery.speakers` says what a person is
called.
"""

from __future__ import annotations

from tailrace.agent.session import TURN_KIND
from tailrace.app.chat_speakers import ChatSpeakers
from tailrace.config.sections import TellNames
from tailrace.delivery.planning.presenter import code_span
from tailrace.delivery.port import MessageReceived, Platform, Sender
from tailrace.delivery.speakers import ELSEWHERE, Speaker, Speakers, one_line_name
from tailrace.events import ApprovalAsked
from tailrace.events.speaker_marks import SpokenBy
from tailrace.ports import Journal

_RUNS_LOOKED_AT = 100  # of a conversation that began before anybody wrote down who speaks in it


class SpeakerNames:
    def __init__(self, journal: Journal, speakers: ChatSpeakers, platform: Platform, tell: TellNames) -> None:
        self._journal = journal
        self._speakers = speakers
        self._platform = platform
        self._tell = tell

    async def spoken_by(self, session: str, received: MessageReceived) -> SpokenBy:
        """The same for an update that comes again. Raises `JournalError`."""
        if received.place.kind == "private" or self._tell == "none":
            return SpokenBy()
        known = await self._heard(session, received)
        always = self._tell == "always"
        if known.are_several or always:
            known = await self._named(session, known, received.sender)
        return known.spoken_by(_speaker(received), from_the_first=always)

    async def name_of(self, sender: Sender) -> str:
        """What the platform calls the person, in one line; empty where it does not tell."""
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

    async def _heard(self, session: str, received: MessageReceived) -> Speakers:
        """Who has spoken in the conversation, with the sender."""
        kept = await self._speakers.of(session)
        if kept is not None and kept.has(received.sender.id):
            return kept
        begun_before = kept is None and await self._others_spoke(session, received.sender)
        return await self._speakers.add(session, _speaker(received), Speakers(begun_before=begun_before))

    async def _others_spoke(self, session: str, sender: Sender) -> bool:
        """In a conversation of which no speakers were kept, as one that was private before."""
        runs = await self._journal.runs(session=session, kind=TURN_KIND, limit=_RUNS_LOOKED_AT)
        return any(run.new.input.get("requester") != f"{self._platform.name}:{sender.id}" for run in runs)

    async def _named(self, session: str, known: Speakers, sender: Sender) -> Speakers:
        """With the names that no update had: the platform is asked once there is somebody to tell apart."""
        if not known.nameless:
            return await self._renamed(session, known, sender)
        names = {person.id: await self.name_of(Sender(person.id)) for person in known.nameless}
        return await self._speakers.name(session, known, names)

    async def _renamed(self, session: str, known: Speakers, sender: Sender) -> Speakers:
        """With the sender's name, where it was not known when the model first read of them."""
        if not known.is_known_by_id(sender.id) or not (name := await self.name_of(sender)):
            return known
        return await self._speakers.rename(session, known, sender.id, name)


def _speaker(received: MessageReceived) -> Speaker:
    return Speaker(received.sender.id, one_line_name(received.sender.name), received.update_id)
