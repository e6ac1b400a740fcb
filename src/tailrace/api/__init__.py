"""The agent as a library: `Agent` for async code, `AIAgent` for code that wants a blocking call and a callback."""

from __future__ import annotations

from tailrace.api.async_agent import Agent, Answer, OnApproval, RunResult, RunStream
from tailrace.api.blocking_agent import AIAgent

__all__ = ["AIAgent", "Agent", "Answer", "OnApproval", "RunResult", "RunStream"]
