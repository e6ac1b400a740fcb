"""The options of `tailrace chat`, for every surface."""

from __future__ import annotations

from tailrace.messages import Value

REQUESTER = "cli"  # who answers the approvals of these runs: the user at this machine


class Options(Value):
    """The parsed command line."""

    model: str = ""  # "<provider>/<model>"; empty: the configured one
    streamed: bool = False
    session: str = ""
    yolo: bool = False
    checkpoints: bool = False  # required: without one nothing is changed
    plan: bool = False
    max_turns: int | None = None
    reasoning: bool = False
