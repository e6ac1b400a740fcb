"""The one place where adapters meet: everything that the config names, opened for as long as the process needs it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.app.app import App, open_app

__all__ = ["App", "open_app"]


if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name: str) -> Any:
        """Loaded when first asked for: a command that only reads the journal needs nothing that runs an agent."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module("tailrace.app.app"), name)
