"""What the bot itself says in a chat, in the same words on every platform. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tailrace.config.sections import ModelChoice
from tailrace.delivery.planning.presenter import code_span

STOPPED: Final = "⏹ Stopped."
NOT_OPEN: Final = "That question is not open any more."
NO_CONVERSATIONS: Final = "Here every question begins a conversation of its own."
RESTARTING: Final = "⏸ Restarting; please ask this again afterwards."  # where no store keeps the question


def no_such_command(meant: str | None) -> str:
    """What to say of a word that is written as a command. `meant`: the command that it is near to."""
    suggestion = f" Did you mean /{meant}?" if meant else ""
    return f"There is no such command.{suggestion} See /help."


def missed(command: str) -> str:
    """What to say of a command that came while no process ran, and may mean something else by now."""
    return f"I was away when /{command} came, and have not carried it out. Send it again if it is still meant."


def unanswered(stopped: Sequence[str]) -> str:
    """What to say of those that waited behind the one that ran: they end with it."""
    match len(stopped) - 1:
        case 1:
            return " The question that waited is not answered either."
        case waited if waited > 1:
            return f" The {waited} questions that waited are not answered either."
    return ""


def ended_by_leaving(stopped: Sequence[str], *, asked: bool) -> str:
    """What to say of what ran in a conversation that is left. `asked`: it waited for an approval."""
    if not stopped:
        return ""
    withdrawn = ", and its question for approval is withdrawn" if asked else ""
    return f" The answer under way was stopped{withdrawn}.{unanswered(stopped)}"


def model_name(choice: ModelChoice) -> str:
    return code_span(f"{choice.provider}/{choice.name}")
