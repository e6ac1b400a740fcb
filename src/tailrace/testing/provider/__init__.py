"""A model endpoint that misbehaves on request, for testing what talks to one.

`async with FaultyProvider(script=[...]) as server` in a test, `python -m tailrace.testing.provider` by hand.
"""

from __future__ import annotations

from tailrace.testing.provider.connection import RecordedRequest
from tailrace.testing.provider.names import catalogue, scenario
from tailrace.testing.provider.replies import REPLIES
from tailrace.testing.provider.scenario import Break, Offset, Scenario, Status, UnknownScenario
from tailrace.testing.provider.server import FaultyProvider
from tailrace.testing.scripted.reply import Citation, Reply, call, refuse, reply, say, think

__all__ = [
    "REPLIES",
    "Break",
    "Citation",
    "FaultyProvider",
    "Offset",
    "RecordedRequest",
    "Reply",
    "Scenario",
    "Status",
    "UnknownScenario",
    "call",
    "catalogue",
    "refuse",
    "reply",
    "say",
    "scenario",
    "think",
]
