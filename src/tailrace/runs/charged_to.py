"""Who a model call is charged to: the key that asked for it, or the surface where it was asked for.

A request's calls are charged to its key; those of a run to who started it, in whichever process they are made.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from tailrace.plugins.installed import is_platform
from tailrace.ports import Run

UNKNOWN: Final = "unknown"
_SURFACES: Final = {"cli": "terminal"}
CHARGED_TO: ContextVar[str] = ContextVar("CHARGED_TO", default=UNKNOWN)


def owner_of(run: Run) -> str:
    """The name of the key, or of the user, that started the run; empty where it is not known."""
    origin = run.new.input.get("origin") or {}
    owner: str = origin.get("owner") or run.new.input.get("requester") or ""
    return owner


def charged_to(run: Run) -> str:
    """The owner; a chat platform's name for what its users ask in the chat: their number has no bound. The session does
    not count: an admin may write to a platform's."""
    owner = owner_of(run)
    return platform_of(owner) or _SURFACES.get(owner, owner) or UNKNOWN


def platform_of(name: str) -> str:
    """The platform that a conversation or a user of this name belongs to (`<platform>:<id>`); empty for any other."""
    platform, colon, _ = name.partition(":")
    return platform if colon and is_platform(platform) else ""
