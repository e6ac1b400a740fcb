"""What became of an approval, in words."""

from __future__ import annotations

import pytest

from tailrace.events import ApprovalAnswered, ApprovalAsked, ApprovalSoFar
from tailrace.runs.approval_words import NO_SURFACE, TIMED_OUT, outcome_words

ASKED = ApprovalAsked("a1", "terminal", "rm x", "1a2b3c4d5e", "ann", asked_at=1000.0, expires_at=1060.0)
OLD = ApprovalAsked("a1", "terminal", "rm x", "d", "ann")


@pytest.mark.parametrize(
    ("asked", "answered", "words"),
    [
        (ASKED, ApprovalAnswered("a1", "once", "ann"), "approved once"),
        (ASKED, ApprovalAnswered("a1", "session", "ann"), "approved for this session"),
        (
            ASKED,
            ApprovalAnswered("a1", "always", "ann"),
            "approved always; tailrace approvals --forget 1a2b3c4d takes it back",
        ),
        (None, ApprovalAnswered("a1", "always", "ann"), "approved always"),
        (ASKED, ApprovalAnswered("a1", "deny", "ann"), "denied"),
        (ASKED, ApprovalAnswered("a1", "deny", "ann", "not today"), "denied: not today"),
        (ASKED, ApprovalAnswered("a1", "deny", TIMED_OUT), "no answer came within 60 s"),
        (OLD, ApprovalAnswered("a1", "deny", TIMED_OUT), "no answer came in time"),
        (None, ApprovalAnswered("a1", "deny", TIMED_OUT), "no answer came in time"),
        (ASKED, ApprovalAnswered("a1", "deny", NO_SURFACE), "no person could be asked"),
        (ASKED, ApprovalSoFar(ASKED), ""),
    ],
)
def test_a_question_that_nobody_answered_is_not_told_as_a_denial(
    asked: ApprovalAsked | None, answered: ApprovalAnswered | ApprovalSoFar, words: str
) -> None:
    assert outcome_words(asked, answered) == words
