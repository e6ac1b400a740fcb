"""What a conversation from the command line is asked for with, whichever surface shows it."""

from __future__ import annotations

from tailrace.messages import Value

REQUESTER = "cli"  # whom an approval is put to, and who may answer it: the person at this machine


class Options(Value):
    """What was asked for on the command line."""

    model: str = ""  # "<provider>/<model>"; empty: the configured one
    streamed: bool = False
    session: str = ""
    yolo: bool = False
    checkpoints: bool = False
    max_turns: int | None = None
    reasoning: bool = False
