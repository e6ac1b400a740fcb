"""Tailrace: a streaming-first runtime for LLM agents. Importing it reads, prints and starts nothing."""

from __future__ import annotations

__version__ = "0.1.0"
