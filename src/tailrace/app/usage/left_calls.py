"""The model calls that a dead process left behind: their usage is counted, their answers are cancelled."""

from __future__ import annotations

from tailrace.app.models import Models
from tailrace.config.sections import ModelChoice
from tailrace.events import UsageRecorded
from tailrace.providers.call import Caller
from tailrace.providers.open_attempt import ResumableAnswer


class LeftCalls:
    """What becomes of the model calls that dead processes left behind."""

    def __init__(self, caller: Caller, models: Models) -> None:
        self._caller = caller
        self._models = models

    def count(self, lost: UsageRecorded) -> None:
        self._caller.count_lost(lost)

    async def cancel(self, answer: ResumableAnswer) -> None:
        choice = ModelChoice(provider=answer.provider, name=answer.model)
        await self._caller.cancel_answer(answer, self._models.routes(choice))
