"""Tailrace: a streaming-first runtime for LLM agents. Importing it reads, prints and starts nothing."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.api import Agent, AIAgent
    from tailrace.tools.function import tool

__version__ = "0.1.0"
__all__ = ["AIAgent", "Agent", "__version__", "tool"]

# Loaded when first asked for: `import tailrace` stays fast.
_LAZY = {"AIAgent": "tailrace.api", "Agent": "tailrace.api", "tool": "tailrace.tools.function"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
