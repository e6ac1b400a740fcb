"""Tailrace: a streaming-first runtime for LLM agents. Importing it reads, prints and starts nothing."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.api import Agent, AIAgent
    from tailrace.api.durable_call import LlmCallError, llm_call, open_llm_calls
    from tailrace.tools.function import tool

__version__ = "0.1.0"
__all__ = ["AIAgent", "Agent", "LlmCallError", "__version__", "llm_call", "open_llm_calls", "tool"]

# Loaded when first asked for: `import tailrace` stays fast.
_LAZY = {
    "AIAgent": "tailrace.api",
    "Agent": "tailrace.api",
    "LlmCallError": "tailrace.api.durable_call",
    "llm_call": "tailrace.api.durable_call",
    "open_llm_calls": "tailrace.api.durable_call",
    "tool": "tailrace.tools.function",
}


if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_LAZY[name]), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
