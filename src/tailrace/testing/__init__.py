"""The test side of the world, shipped so that users can test against it too: a provider that misbehaves on request,
answers without a socket, and an event loop whose clock is driven. Nothing in the product imports it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.testing.clock import Deadlock, driven, run_driven
    from tailrace.testing.provider import FaultyProvider, Reply, Scenario, call, refuse, reply, say, think
    from tailrace.testing.scripted import Cut, Fail, ScriptedProvider, Stall

# Loaded when first asked for: `python -m tailrace.testing.provider` needs one of them.
_LAZY = {
    **dict.fromkeys(("Deadlock", "driven", "run_driven"), "tailrace.testing.clock"),
    **dict.fromkeys(("FaultyProvider", "Scenario"), "tailrace.testing.provider"),
    **dict.fromkeys(("Reply", "call", "refuse", "reply", "say", "think"), "tailrace.testing.scripted"),
    **dict.fromkeys(("Cut", "Fail", "ScriptedProvider", "Stall"), "tailrace.testing.scripted"),
}
__all__ = [
    "Cut",
    "Deadlock",
    "Fail",
    "FaultyProvider",
    "Reply",
    "Scenario",
    "ScriptedProvider",
    "Stall",
    "call",
    "driven",
    "refuse",
    "reply",
    "run_driven",
    "say",
    "think",
]


if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_LAZY[name]), name)

    def __dir__() -> list[str]:
        return sorted(__all__)
