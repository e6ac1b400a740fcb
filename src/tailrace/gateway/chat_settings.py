"""What the gateway must know after a restart that no log holds: what people chose in their chats, and who was paired.

Kept in the journal, so any process that has it open reads and changes the same.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from tailrace.delivery.port import Place
from tailrace.errors import TailraceError
from tailrace.journal.key_values import KeyValues
from tailrace.messages import Value
from tailrace.ports import SmallState

CODE_LIFE_S = 3600.0
_NEWEST = "newest"
MAX_CODES = 100  # that wait for an answer, of all platforms together
_ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"  # without characters that are easily mistaken for others


class ChatSettings(Value):
    """What was chosen in one place. `verbose` None: not chosen, as the config says.

    The conversations of a place are numbered. `generation` is the one that it has now, `newest` the one that was begun
    last, `before` the one that `/back` returns to, None where there is none. `moved_by` is the update that has changed
    `generation`: the same update again changes nothing."""

    generation: int = 0
    model: str = ""
    verbose: bool | None = None
    newest: int = 0
    before: int | None = None
    moved_by: str = ""

    def begun_anew(self, update_id: str, *, is_empty: bool) -> ChatSettings:
        """`is_empty`: nothing was said in the current conversation, so that /back need not return to it."""
        if self.moved_by == update_id:
            return self
        number = max(self.newest, self.generation) + 1
        before = self.before if is_empty else self.generation
        return replace(self, generation=number, newest=number, before=before, moved_by=update_id)

    def gone_back(self, update_id: str) -> ChatSettings:
        if self.moved_by == update_id or self.before is None:
            return self
        newest = max(self.newest, self.generation)
        return replace(self, generation=self.before, newest=newest, before=self.generation, moved_by=update_id)


class ChatSettingsStore:
    """The settings by the conversation's key, and the users who were told of /verbose."""

    def __init__(self, journal: SmallState) -> None:
        self.settings = KeyValues(journal, "chats.settings", ChatSettings)
        self.hinted = KeyValues(journal, "chats.hinted", bool)

    async def of(self, key: str) -> ChatSettings:
        return await self.settings.get(key) or ChatSettings()

    async def update(self, key: str, change: Callable[[ChatSettings], ChatSettings]) -> ChatSettings:
        """Returns what `change` made of the settings; it may be called more than once."""
        return await self.settings.update(key, lambda known: change(known or ChatSettings())) or ChatSettings()

    async def was_hinted(self, user: str) -> bool:
        return await self.hinted.get(user) is not None

    async def mark_hinted(self, user: str) -> None:
        await self.hinted.set_default(user, True)


EVERYONE = "*"


def is_allowed(allow: Sequence[str], user_id: str) -> bool:
    """Whether the allow-list names this user. Ids are compared as text, phone numbers with or without the `+`."""
    wanted = user_id.removeprefix("+")
    return any(entry == EVERYONE or entry.removeprefix("+") == wanted for entry in allow)


class PairingCode(Value):
    user: str  # "<platform>:<id>"
    name: str = ""
    at: float = 0.0  # wall clock, seconds since the epoch
    code: str = ""
    place: Place | None = None  # where they were told the code

    @property
    def expired(self) -> bool:
        return self.at + CODE_LIFE_S <= time.time()


class Welcome(Value):
    """A person whose code was accepted, and who is still to be told so."""

    place: Place
    code: str  # that has let them in


class PairedUser(Value):
    """`name` is what the platform called them when they were given their code; empty where it gave none."""

    user: str  # "<platform>:<id>"
    name: str = ""


class Pairing:
    """New users: the bot gives them a code, and the operator lets the code in."""

    def __init__(self, journal: SmallState) -> None:
        self.codes = KeyValues(journal, "pairing.codes", PairingCode)  # by user
        self.users = KeyValues(journal, "pairing.users", bool)
        self._names = KeyValues(journal, "pairing.names", str)  # by user
        self._welcomes = KeyValues(journal, "pairing.welcomes", Welcome)  # by user
        self._accepted = KeyValues(journal, "pairing.accepted", str)  # the newest code that was accepted
        self._journal = journal

    async def is_paired(self, user: str) -> bool:
        return await self.users.get(user) is not None

    async def code_for(self, user: str, name: str, place: Place | None = None) -> str | None:
        """This user's code, the same one until it expires. None where too many users wait already."""
        waiting = await self.codes.all()
        for other in [other for other, code in waiting.items() if code.expired]:
            del waiting[other]
            await self.codes.update(other, lambda known: None if known is None or known.expired else known)
        if user not in waiting and len(waiting) >= MAX_CODES:
            return None
        digits = "".join(secrets.choice(_ALPHABET) for _ in range(8))
        new = PairingCode(user, name[:80], time.time(), digits, place)
        given = await self.codes.update(user, lambda known: new if known is None or known.expired else known)
        return given.code if given is not None else None

    async def accept(self, code: str) -> PairingCode:
        """Lets the user in who was given this code. Raises `TailraceError` for an unknown or expired code."""
        wanted = code.strip().upper()
        waiting = (await self.codes.all()).values()
        found = next((each for each in waiting if each.code == wanted and not each.expired), None)
        if found is None:
            raise TailraceError(f"no such pairing code, or it has run out: {code.strip()[:20]!r}")
        await self._names.update(found.user, lambda _: found.name or None)
        await self.users.set_default(found.user, True)
        await self.codes.update(found.user, lambda _: None)
        if found.place is not None:
            await self._welcomes.set_default(found.user, Welcome(found.place, found.code))
            await self._accepted.update(_NEWEST, lambda _: found.code)
        return found

    async def take_welcomes(self, platform: str) -> list[Welcome]:
        """Who is to be told that they were let in, on this platform. Each is taken once."""
        due = {user: one for user, one in (await self._welcomes.all()).items() if one.place.platform == platform}
        for user in due:
            await self._welcomes.update(user, lambda _: None)
        return list(due.values())

    async def newest_accepted(self) -> str | None:
        """The code that was accepted last."""
        return await self._accepted.get(_NEWEST)

    async def until_accepted(self, known: str | None) -> None:
        """Returns when a code was accepted after this one, in whichever process."""
        data = None if known is None else msgspec.json.encode(known)
        await self._journal.next_value("pairing.accepted", _NEWEST, data)

    async def paired(self) -> list[PairedUser]:
        """The users who were let in."""
        names = await self._names.all()
        return [PairedUser(user, names.get(user, "")) for user in sorted(await self.users.all())]

    async def remove(self, user: str) -> None:
        """No longer serves a user who was let in. Raises `TailraceError` for one who was not."""
        if not await self.is_paired(user):
            raise TailraceError(
                f"no such user was let in by a code: {user[:80]!r}; tailrace gateway --paired lists them"
            )
        await self.users.update(user, lambda _: None)
        await self._welcomes.update(user, lambda _: None)
        await self._names.update(user, lambda _: None)


def switched(argument: str, *, now: bool) -> bool | None:
    """What a switch is set to: the opposite without an argument, None for an argument that says neither."""
    return {"": not now, "on": True, "off": False}.get(argument.lower())
