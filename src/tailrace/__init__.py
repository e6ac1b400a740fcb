"""Tailrace: a streaming-first runtime for LLM agents. Importing it reads, prints and starts nothing."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.api import Agent, AIAgent, RunResult, RunStream
    from tailrace.api.durable_call import LlmCallError, llm_call, open_llm_calls
    from tailrace.errors import ConfigError, RunFailed, TailraceError
    from tailrace.messages import File, Image, Message
    from tailrace.tools.context import Context
    from tailrace.tools.function import tool

__version__ = "0.1.0"

# Loaded when first asked for: `import tailrace` stays fast.
_LAZY = {
    **dict.fromkeys(("AIAgent", "Agent", "RunResult", "RunStream"), "tailrace.api"),
    **dict.fromkeys(("LlmCallError", "llm_call", "open_llm_calls"), "tailrace.api.durable_call"),
    **dict.fromkeys(("ConfigError", "RunFailed", "TailraceError"), "tailrace.errors"),
    **dict.fromkeys(("File", "Image", "Message"), "tailrace.messages"),
    "Context": "tailrace.tools.context",
    "tool": "tailrace.tools.function",
}
__all__ = [
    "AIAgent",
    "Agent",
    "ConfigError",
    "Context",
    "File",
    "Image",
    "LlmCallError",
    "Message",
    "RunFailed",
    "RunResult",
    "RunStream",
    "TailraceError",
    "__version__",
    "llm_call",
    "open_llm_calls",
    "tool",
]


if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_LAZY[name]), name)

    def __dir__() -> list[str]:
        return sorted(__all__)
