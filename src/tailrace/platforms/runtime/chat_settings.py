"""What the gateway must know after a restart that no log holds: what people chose in their chats, and who was paired.

Two small files in the home directory, each written whole; a file that another process has changed is read again.
"""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from tailrace.errors import ConfigError, TailraceError
from tailrace.messages import Value

CODE_LIFE_S = 3600.0
MAX_CODES = 100  # that wait for an answer, of all platforms together
_ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"  # without what is easily mistaken for something else

Stored = TypeVar("Stored", bound=Value)


class _File(Generic[Stored]):
    """One value in one JSON file."""

    def __init__(self, path: Path, kind: type[Stored]) -> None:
        self._path, self._kind = path, kind
        self._value = kind()
        self._stamp = 0

    def read(self) -> Stored:
        """Raises `ConfigError` where the file is not one of ours."""
        try:
            stamp = self._path.stat().st_mtime_ns
            if stamp != self._stamp:
                self._value = msgspec.json.decode(self._path.read_bytes(), type=self._kind)
                self._stamp = stamp
        except FileNotFoundError:
            self._value, self._stamp = self._kind(), 0
        except (OSError, msgspec.DecodeError) as exc:
            raise ConfigError(f"cannot be read ({exc}); mend or remove it", file=str(self._path)) from exc
        return self._value

    def write(self, value: Stored) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix(".tmp")
        temporary.write_bytes(msgspec.json.encode(value))
        temporary.chmod(0o600)
        temporary.replace(self._path)
        self._value, self._stamp = value, self._path.stat().st_mtime_ns


class ChatChoices(Value):
    """What was chosen in one conversation. `generation` counts how often it was begun anew."""

    generation: int = 0
    model: str = ""
    verbose: bool = False


class _Chats(Value):
    chats: dict[str, ChatChoices] = msgspec.field(default_factory=dict)
    hinted: tuple[str, ...] = ()  # users who were told of /verbose


class Choices:
    """By the conversation's key."""

    def __init__(self, home: Path) -> None:
        self._file = _File(home / "chats.json", _Chats)

    def of(self, key: str) -> ChatChoices:
        return self._file.read().chats.get(key, ChatChoices())

    def set(self, key: str, choices: ChatChoices) -> None:
        known = self._file.read()
        self._file.write(msgspec.structs.replace(known, chats={**known.chats, key: choices}))

    def was_hinted(self, user: str) -> bool:
        return user in self._file.read().hinted

    def hint(self, user: str) -> None:
        known = self._file.read()
        if user not in known.hinted:
            self._file.write(msgspec.structs.replace(known, hinted=(*known.hinted, user)))


class PairingCode(Value):
    user: str  # "<platform>:<id>"
    name: str = ""
    at: float = 0.0


class _Pairings(Value):
    codes: dict[str, PairingCode] = msgspec.field(default_factory=dict)
    paired: tuple[str, ...] = ()


class Pairing:
    """New users: the bot gives them a code, and whoever runs it lets the code in."""

    def __init__(self, home: Path) -> None:
        self._file = _File(home / "pairing.json", _Pairings)

    def is_paired(self, user: str) -> bool:
        return user in self._file.read().paired

    def code_for(self, user: str, name: str) -> str | None:
        """This user's code, the same one while it lives. None where too many wait already."""
        known = self._file.read()
        now = time.time()
        alive = {code: waiting for code, waiting in known.codes.items() if waiting.at + CODE_LIFE_S > now}
        for code, waiting in alive.items():
            if waiting.user == user:
                return code
        if len(alive) >= MAX_CODES:
            return None
        code = "".join(secrets.choice(_ALPHABET) for _ in range(8))
        self._file.write(msgspec.structs.replace(known, codes={**alive, code: PairingCode(user, name[:80], now)}))
        return code

    def accept(self, code: str) -> PairingCode:
        """Lets the user in who was given this code. Raises `TailraceError` where nobody was, or it has run out."""
        known = self._file.read()
        waiting = known.codes.get(code.strip().upper())
        if waiting is None or waiting.at + CODE_LIFE_S <= time.time():
            raise TailraceError(f"no such pairing code, or it has run out: {code.strip()[:20]!r}")
        codes = {other: value for other, value in known.codes.items() if value.user != waiting.user}
        paired = tuple(user for user in known.paired if user != waiting.user)
        self._file.write(_Pairings(codes, (*paired, waiting.user)))
        return waiting
