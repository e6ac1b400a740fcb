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
    """A chat platform's name for what its users ask: their number has no bound."""
    platform, colon, _ = run.new.session.partition(":")
    if colon and is_platform(platform):
        return platform
    owner = owner_of(run)
    return _SURFACES.get(owner, owner) or UNKNOWN
