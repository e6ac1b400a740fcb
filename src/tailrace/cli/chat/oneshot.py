"""One question, one answer: the answer alone on stdout, all else on stderr."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import App
from tailrace.cli.chat.options import REQUESTER
from tailrace.cli.chat.run_printer import RunPrinter
from tailrace.cli.chat.tty_approval import TerminalAsker
from tailrace.cli.main import DONE, FAILED, INCOMPLETE, INTERRUPTED, print_error
from tailrace.events import RunStatus
from tailrace.runs.view import changes

EXIT: Final[dict[RunStatus, int]] = {
    "completed": DONE,
    "incomplete": INCOMPLETE,
    "failed": FAILED,
    "stopped": INTERRUPTED,
}


class OneShot(RunPrinter):
    """Asks one question and prints the run."""

    is_exact = True

    def __init__(
        self,
        app: App,
        *,
        streamed: bool,
        as_json: bool,
        reasoning: bool = False,
        asker: TerminalAsker | None = None,
        footer: bool = False,
    ) -> None:
        super().__init__(
            app.journal, app.config, streamed=streamed, as_json=as_json, reasoning=reasoning, footer=footer
        )
        self._app = app
        self._asker = asker

    async def ask(self, spec: TurnSpec, session: str = "") -> int:
        """Returns the exit code. When it is cancelled, or stdout cannot be written, it stops the run first."""
        spec = msgspec.structs.replace(
            spec, reachable=self._asker is not None or bool(self._app.config.approvals.notify)
        )
        run = await self._app.agents.submit(spec, session=session)
        return await self.join(run.id)

    async def join(self, run_id: str) -> int:
        """The same for a run that has been started."""
        self._viewer = REQUESTER
        try:
            await self.watch(run_id)
        except asyncio.CancelledError:
            await self._stop(run_id)
            await self.watch(run_id)
            raise
        except OSError:
            await self._stop(run_id)
            await self._app.agents.finished(run_id)
            raise
        return self._exit_code()

    async def _stop(self, run_id: str) -> None:
        self._stops = True
        await self._app.agents.stop(run_id, by=REQUESTER)

    async def _question(self, run_id: str, change: changes.Asked | changes.Answered) -> None:
        if self._asker is None or isinstance(change, changes.Answered) or change.question.requester != REQUESTER:
            return  # it will be denied, and told then
        question = change.question
        answer = await self._asker.ask(question, timeout_s=self._app.config.approvals.wait_s())
        if answer is not None:
            decision, reason = answer
            await self._app.agents.answer(run_id, question.approval_id, decision, by=REQUESTER, reason=reason)

    def _exit_code(self) -> int:
        if self.finished is None:  # the journal was closed
            print_error("the run has not ended; see: tailrace runs")
            return FAILED
        code = EXIT[self.finished.status]
        return INCOMPLETE if code == DONE and self._not_executed else code
