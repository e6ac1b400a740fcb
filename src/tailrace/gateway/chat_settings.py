"""What the gateway must know after a restart that no log holds: what people chose in their chats, and who was paired.

Kept in the journal, so any process that has it open reads and changes the same.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from tailrace.errors import TailraceError
from tailrace.journal.key_values import KeyValues
from tailrace.messages import Value
from tailrace.ports import SmallState

CODE_LIFE_S = 3600.0
MAX_CODES = 100  # that wait for an answer, of all platforms together
_ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"  # without characters that are easily mistaken for others


class ChatSettings(Value):
    """What was chosen in one place.

    The conversations of a place are numbered; `generation` is the one that it has now. `moved_by` is the update that
    has begun it: the same update again changes nothing."""

    generation: int = 0
    model: str = ""
    verbose: bool | None = None  # tools are shown with their arguments and output; None: not chosen
    moved_by: str = ""

    def begun_anew(self, update_id: str) -> ChatSettings:
        if self.moved_by == update_id:
            return self
        return replace(self, generation=self.generation + 1, moved_by=update_id)


class ChatSettingsStore:
    """The settings by the conversation's key."""

    def __init__(self, journal: SmallState) -> None:
        self.settings = KeyValues(journal, "chats.settings", ChatSettings)

    async def of(self, key: str) -> ChatSettings:
        return await self.settings.get(key) or ChatSettings()

    async def update(self, key: str, change: Callable[[ChatSettings], ChatSettings]) -> ChatSettings:
        """Returns what `change` made of the settings; it may be called more than once."""
        return await self.settings.update(key, lambda known: change(known or ChatSettings())) or ChatSettings()


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

    @property
    def expired(self) -> bool:
        return self.at + CODE_LIFE_S <= time.time()


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

    async def is_paired(self, user: str) -> bool:
        return await self.users.get(user) is not None

    async def code_for(self, user: str, name: str) -> str | None:
        """This user's code, the same one until it expires. None where too many users wait already."""
        waiting = await self.codes.all()
        for other in [other for other, code in waiting.items() if code.expired]:
            del waiting[other]
            await self.codes.update(other, lambda known: None if known is None or known.expired else known)
        if user not in waiting and len(waiting) >= MAX_CODES:
            return None
        digits = "".join(secrets.choice(_ALPHABET) for _ in range(8))
        new = PairingCode(user, name[:80], time.time(), digits)
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
        return found

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
        await self._names.update(user, lambda _: None)
