"""The session of a login by password, kept in a file that its owner alone can read: homeservers allow few logins, and a
device's transaction ids are known to the homeserver for as long as its session lasts."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import os
import secrets
from pathlib import Path
from typing import NamedTuple

import msgspec

from tailrace.system.private_files import make_private_directory

log = logging.getLogger("tailrace.integrations.matrix")
_COST, _BLOCK = 1 << 14, 8  # of scrypt: 16 MB and some tens of milliseconds


class Session(NamedTuple):
    user_id: str
    token: str


class _Kept(msgspec.Struct):
    user_id: str
    token: str
    salt: str
    password: str  # its digest: a changed password logs in anew, so that a wrong one shows


class SessionFile:
    """The access token of one account's device, beside the journal."""

    def __init__(self, home: Path, homeserver: str, user: str) -> None:
        name = hashlib.blake2b(f"{homeserver}\0{user}".encode(), digest_size=8).hexdigest()
        self._path = home / f"matrix-session-{name}.json"

    def of(self, password: str) -> Session | None:
        """What a login with this password gave; None where nothing is kept of it."""
        kept = self._read()
        if kept is None or not hmac.compare_digest(kept.password, _digest(password, kept.salt)):
            return None
        return Session(kept.user_id, kept.token)

    def keep(self, session: Session, password: str) -> None:
        """Replaces what is kept. A directory that cannot be written costs a login at each start, and nothing else."""
        salt = secrets.token_hex(16)
        content = msgspec.json.encode(_Kept(*session, salt, _digest(password, salt)))
        partial = self._path.with_name(f"{self._path.name}.{secrets.token_hex(4)}")
        try:
            if not self._path.parent.exists():
                make_private_directory(self._path.parent)
            with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(content)
            partial.replace(self._path)
        except OSError as exc:
            log.warning("matrix: the session is not kept, and the next start logs in anew: %s", exc)
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)

    def forget(self, token: str) -> None:
        """The homeserver no longer knows this token. Another one, of a later login, stays."""
        kept = self._read()
        if kept is not None and kept.token == token:
            with contextlib.suppress(OSError):
                self._path.unlink()

    def _read(self) -> _Kept | None:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Kept)
        except (OSError, msgspec.MsgspecError):
            return None


def _digest(password: str, salt: str) -> str:
    return hashlib.scrypt(password.encode(), salt=salt.encode(), n=_COST, r=_BLOCK, p=1).hex()
