"""The agent as a library: `Agent`, and `AIAgent` for code that wants a blocking call and a callback."""

from __future__ import annotations

from tailrace.api.async_agent import Agent
from tailrace.api.blocking_agent import AIAgent
from tailrace.api.run_companion import Answer, OnApproval, OnChange
from tailrace.api.run_stream import RunResult, RunStream

__all__ = ["AIAgent", "Agent", "Answer", "OnApproval", "OnChange", "RunResult", "RunStream"]
