"""Remembers who speaks in the shared conversations of one platform, and tells the model so.

Private chats stay as they are. `delivery.speakers` says how a person is named.
"""

from __future__ import annotations

from msgspec.structs import replace

from tailrace.agent.session import TURN_KIND
from tailrace.app.housekeeping import CHAT_SPEAKERS
from tailrace.config.sections import TellNames
from tailrace.delivery.port import MessageReceived, Platform, Sender
from tailrace.delivery.speakers import Speaker, Speakers, attributed_text, one_line_name, unmarked_text
from tailrace.journal.key_values import KeyValues
from tailrace.messages import Value
from tailrace.ports import Journal

_RUNS_LOOKED_AT = 100  # of a conversation that began before anybody wrote down who speaks in it


class Attributed(Value):
    """A message as the model gets it, and the name that it says; empty where it says none."""

    message: MessageReceived
    speaker: str = ""


class SpeakerNames:
    """The speakers by session, in the journal: every process names a person alike, also after a restart."""

    def __init__(self, journal: Journal, platform: Platform, tell: TellNames) -> None:
        self._journal = journal
        self._platform = platform
        self._tell = tell
        self._kept = KeyValues(journal, CHAT_SPEAKERS, Speakers)

    async def attribute(self, session: str, received: MessageReceived) -> Attributed:
        """The same for an update that comes again. Raises `JournalError`."""
        if received.place.kind == "private" or self._tell == "none":
            return Attributed(received)
        known = await self._heard(session, received)
        if self._tell == "several" and not known.are_several:
            return Attributed(replace(received, text=unmarked_text(received.text)))
        known = await self._named(session, known)
        label = known.label_of(_speaker(received))
        first = known.sole_speaker_before(received.update_id) if self._tell == "several" else None
        above = known.label_of(first) if first is not None else ""
        return Attributed(replace(received, text=attributed_text(received.text, label, above=above)), label)

    async def _heard(self, session: str, received: MessageReceived) -> Speakers:
        """Who has spoken in the conversation, with the sender."""
        kept = await self._kept.get(session)
        if kept is not None and kept.has(received.sender.id):
            return kept
        new = Speakers(begun_before=kept is None and await self._others_spoke(session, received.sender))
        person = _speaker(received)
        return await self._kept.update(session, lambda known: (known or new).with_person(person)) or new

    async def _others_spoke(self, session: str, sender: Sender) -> bool:
        """In a conversation of which no speakers were kept, as one that was private before."""
        runs = await self._journal.runs(session=session, kind=TURN_KIND, limit=_RUNS_LOOKED_AT)
        return any(run.new.input.get("requester") != f"{self._platform.name}:{sender.id}" for run in runs)

    async def _named(self, session: str, known: Speakers) -> Speakers:
        """With the names that no update had: the platform is asked once there is somebody to tell apart."""
        if not known.nameless:
            return known
        found = [await self._platform.display_name(Sender(person.id)) for person in known.nameless]
        names = {
            person.id: one_line_name(name) or one_line_name(person.id)
            for person, name in zip(known.nameless, found, strict=True)
        }
        return await self._kept.update(session, lambda newer: (newer or known).with_names(names)) or known


def _speaker(received: MessageReceived) -> Speaker:
    return Speaker(received.sender.id, one_line_name(received.sender.name), received.update_id)
