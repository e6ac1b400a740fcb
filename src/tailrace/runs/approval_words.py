"""The outcome of an approval, in words that every surface shares. A question without an answer is never shown as a
denial. Pure; knows events alone."""

from __future__ import annotations

from typing import Final

from tailrace.events import ApprovalAnswered, ApprovalAsked, ApprovalSoFar

NO_SURFACE: Final = "no surface"  # `ApprovalAnswered.by` where no person could be asked
TIMED_OUT: Final = "timeout"  # `ApprovalAnswered.by` where the time was up
RUN_OVER: Final = "run over"  # in place of a name, for a question that was open when its run ended
WRITTEN_OVER: Final = "newer message"  # the same, where a newer message has ended the run
SHORT_ID: Final = 8  # characters of a digest that stand for an approval
_APPROVED: Final = {"once": "approved once", "session": "approved for this session", "always": "approved always"}


def outcome_words(asked: ApprovalAsked | None, answered: ApprovalAnswered | ApprovalSoFar) -> str:
    """In lower case and without a full stop; empty while the question is open."""
    if answered.decision is None:
        return ""
    if answered.decision != "deny":
        command = forget_command(asked) if asked is not None and answered.decision == "always" else ""
        return _APPROVED[answered.decision] + (f"; {command} takes it back" if command else "")
    if words := unanswered_words(asked, answered.by):
        return words
    return f"denied: {answered.reason}" if answered.reason else "denied"


def forget_command(asked: ApprovalAsked) -> str:
    """The command that takes back what was approved always."""
    return f"tailrace approvals --forget {asked.digest[:SHORT_ID]}"


def unanswered_words(asked: ApprovalAsked | None, by: str) -> str:
    """Why there was no answer; empty where there was one."""
    if by == NO_SURFACE:
        return "no person could be asked"
    if by == RUN_OVER:
        return "the run ended before an answer came"
    if by == WRITTEN_OVER:
        return "another message came in place of an answer"
    if by != TIMED_OUT:
        return ""
    waited_s = round(asked.expires_at - asked.asked_at) if asked is not None and asked.expires_at else 0
    return f"no answer came within {waited_s} s" if waited_s else "no answer came in time"
