"""Questions of other runs, on the screen of a chat."""

from __future__ import annotations

from collections.abc import Callable

from tailrace.app import App
from tailrace.app.approvals import QuestionsElsewhere, WaitingApproval
from tailrace.app.timeline.question import question_of
from tailrace.cli.screen.sanitize import sanitized_line
from tailrace.cli.screen.transcript import Transcript
from tailrace.events import ApprovalAnswered, Decision


class ScreenQuestions:
    """Satisfies `QuestionSurface`. `changed` draws the screen."""

    def __init__(self, app: App, requester: str, transcript: Transcript, changed: Callable[[], None]) -> None:
        self._questions = QuestionsElsewhere(app.agents, app.waiting, app.config, requester, lambda: app.stored_keys)
        self._transcript = transcript
        self._changed = changed

    async def watch(self) -> None:
        """Until it is cancelled."""
        await self._questions.watch(self)

    async def answer(self, approval_id: str, decision: Decision, reason: str) -> bool:
        """False where the question is of no other run. Raises `TailraceError`."""
        return await self._questions.answer(approval_id, decision, reason)

    def ask(self, waiting: WaitingApproval) -> None:
        asks = f"another run asks: {sanitized_line(question_of(waiting.run), 100)}"
        self._transcript.ask_elsewhere(waiting.asked, asks)
        self._changed()

    def take_away(self, waiting: WaitingApproval, answer: ApprovalAnswered | None) -> None:
        self._transcript.answered_elsewhere(waiting.asked, answer)
        self._changed()
