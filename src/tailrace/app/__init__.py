"""The one place where adapters meet: everything that the config names, opened for as long as the process needs it."""

from __future__ import annotations

from tailrace.app.app import App, open_app

__all__ = ["App", "open_app"]
