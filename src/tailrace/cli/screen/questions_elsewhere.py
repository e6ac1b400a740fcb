"""Questions of other runs, on the screen of a chat."""

from __future__ import annotations

from collections.abc import Callable

from tailrace.app.approvals import WaitingApproval
from tailrace.app.timeline.question import question_of
from tailrace.cli.screen.sanitize import sanitized_line
from tailrace.cli.screen.transcript import Transcript
from tailrace.events import ApprovalAnswered


class ScreenQuestions:
    """Satisfies `QuestionSurface`."""

    def __init__(self, transcript: Transcript, changed: Callable[[], None]) -> None:
        self._transcript = transcript
        self._changed = changed

    def ask(self, waiting: WaitingApproval) -> None:
        asks = f"another run asks: {sanitized_line(question_of(waiting.run), 100)}"
        self._transcript.ask_elsewhere(waiting.asked, asks)
        self._changed()

    def take_away(self, waiting: WaitingApproval, answer: ApprovalAnswered | None) -> None:
        self._transcript.answered_elsewhere(waiting.asked, answer)
        self._changed()
