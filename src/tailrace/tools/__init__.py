"""What the agent can do: one tool per file, each behind the `Tool` port. `tool` makes one of your own function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.tools.function import tool as tool


if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name: str) -> Any:
        """`from tailrace.tools import tool`, imported when it is asked for."""
        if name == "tool":
            from tailrace.tools.function import tool

            return tool
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
