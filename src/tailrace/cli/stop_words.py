"""How the terminal names the person or the surface that stopped a run."""

from __future__ import annotations

from typing import Final

from tailrace.events import RunFailure
from tailrace.runs.signals import INTERRUPTED, NEWER_MESSAGE

# By the name under which a surface asks and stops; any other name is a user's or a key's, and is shown as it is.
_SURFACES: Final = {
    "cli": "a terminal",
    "editor": "an editor",
    "local": "a client of the server",
    "mcp": "an MCP host",
    "python": "a Python program",
}


def stop_words(failure: RunFailure | None, *, viewer: str = "") -> str:
    """`stopped by alice`, `interrupted by a newer message from an editor`; in lower case, without a full stop.
    `viewer` is the surface that shows it: another surface of the same name is named as such."""
    if failure is None or not failure.by:
        return failure.message if failure is not None else INTERRUPTED.message
    who = _SURFACES.get(failure.by, failure.by)
    if failure.by == viewer:
        who = f"another {who.partition(' ')[2]}"
    return f"{failure.message} from {who}" if failure.code == NEWER_MESSAGE else f"stopped by {who}"
