"""Who has spoken in the shared chats of the platforms, by session, in the journal: every process names a person alike.

Also names whoever asks in such a conversation from elsewhere: the page, a terminal, the API. `delivery.speakers` says
what a person is called.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from tailrace.app.housekeeping import CHAT_SPEAKERS
from tailrace.config.sections import Platforms, TellNames
from tailrace.delivery.speakers import Speaker, Speakers, one_line_name, speaker_elsewhere
from tailrace.events.speaker_marks import SpokenBy
from tailrace.journal.key_values import KeyValues
from tailrace.ports import Journal


class ChatSpeakers:
    """The speakers of each shared conversation. They raise `JournalError`."""

    def __init__(self, journal: Journal, platforms: Platforms) -> None:
        self._kept = KeyValues(journal, CHAT_SPEAKERS, Speakers)
        self._platforms = platforms

    async def of(self, session: str) -> Speakers | None:
        """None for a conversation that is not shared, as far as is known."""
        return await self._kept.get(session)

    async def add(self, session: str, person: Speaker, new: Speakers) -> Speakers:
        """With the person. `new` is what the conversation begins with, where nobody is known in it."""
        return await self._kept.update(session, lambda known: (known or new).with_person(person)) or new

    async def name(self, session: str, known: Speakers, names: Mapping[str, str]) -> Speakers:
        """With the names of people who had none, by their ids. An id stands for a name that cannot be had."""
        given = {person.id: names.get(person.id, "") or one_line_name(person.id) for person in known.nameless}
        return await self._kept.update(session, lambda newer: (newer or known).with_names(given)) or known

    async def rename(self, session: str, known: Speakers, person_id: str, name: str) -> Speakers:
        """With the name of a person whom the model knows by the id so far."""
        return await self._kept.update(session, lambda newer: (newer or known).with_name_of(person_id, name)) or known

    async def spoken_by(self, session: str, requester: str, key: str) -> SpokenBy | None:
        """Whose a question is that comes from elsewhere into this conversation; the same for a `key` that comes again.
        None where nobody has to be told apart."""
        known = await self.of(session)
        if known is None or (tell := self._tell(session)) == "none":
            return None
        if known.nameless:
            known = await self.name(session, known, {})
        person = speaker_elsewhere(requester, key or secrets.token_hex(8))
        known = await self.add(session, person, known)
        return known.spoken_by(person, from_the_first=tell == "always")

    async def copy(self, session: str, fork: str) -> None:
        """A fork goes on with the people of the conversation that it comes from."""
        if (known := await self.of(session)) is not None and self._tell(session) != "none":
            await self._kept.set_default(fork, known)

    async def forget(self, session: str) -> None:
        await self._kept.update(session, lambda _: None)

    def _tell(self, session: str) -> TellNames:
        """What the config says of the platform's chats; a fork is no platform's."""
        platform = self._platforms.by_name.get(session.partition(":")[0])
        return platform.names if platform is not None else "several"
