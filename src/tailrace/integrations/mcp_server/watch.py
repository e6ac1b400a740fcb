"""One call of a tool that follows a run: reports progress, has its questions asked, ends with the run.

A viewer: nothing here keeps the run from going on when the call ends.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

from mcp.server.context import ServerRequestContext

from tailrace.app import App
from tailrace.errors import RunParked, RunSealed
from tailrace.events import ApprovalAsked, Decision
from tailrace.integrations.mcp_server.approvals import CannotAsk, asked_by_request, has_elicitation
from tailrace.integrations.mcp_server.host_view import HostView
from tailrace.ports import Journal
from tailrace.runs.recovery import follow
from tailrace.runs.signals import FlatTaskGroup
from tailrace.server.http.auth import Identity

PROGRESS_EVERY_S: Final = 0.25
SIGN_OF_LIFE_S: Final = 10.0  # hosts give up calls that say nothing for a while
LONG_LOG: Final = 1000  # entries
_LITTLE: Final = 0.001


async def read_view(journal: Journal, run_id: str, after: int = 0) -> HostView:
    """The run as far as its log goes. A long log takes a while: meanwhile the loop serves others."""
    view, entries = HostView(after), await journal.read(run_id)
    if len(entries) > LONG_LOG:
        await asyncio.to_thread(view.feed, entries)
    else:
        view.feed(entries)
    return view


class RunWatch:
    """Follows one run on behalf of one request."""

    def __init__(
        self, app: App, context: ServerRequestContext[Any, Any], run_id: str, view: HostView, caller: Identity
    ) -> None:
        self._app = app
        self._context = context
        self._run_id = run_id
        self._view = view
        self._caller = caller
        self._changed = asyncio.Event()
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._asks = has_elicitation(context) and context.session.can_send_request
        self.answered: set[str] = set()  # approvals whose answer is on its way into the log

    async def answer(self, approval_id: str, decision: Decision) -> None:
        """Raises nothing where the run has ended meanwhile."""
        self.answered.add(approval_id)
        with suppress(RunSealed):
            await self._app.agents.answer(self._run_id, approval_id, decision, by=self._caller.name, authorised=True)

    async def follow(self) -> None:
        """Returns when the run has ended or is parked, or when a question is open that the host's model must pass on.
        The view must have the log as far as it is known."""
        with suppress(RunParked, CannotAsk):
            async with FlatTaskGroup() as group:
                progress = group.create_task(self._report_progress())
                try:
                    await self._follow(group)
                finally:
                    progress.cancel()
                    for asking in self._asking.values():
                        asking.cancel()

    async def _follow(self, group: asyncio.TaskGroup) -> None:
        self._changed.set()
        if self._is_over(group):
            return
        async for batch in follow(self._app.journal, self._run_id, after=self._view.seq):
            self._view.feed(batch)
            self._changed.set()
            if self._is_over(group):
                return

    def _is_over(self, group: asyncio.TaskGroup) -> bool:
        """Has new questions asked, and takes those back that were answered elsewhere."""
        view = self._view
        new = {
            key: asked
            for key, asked in view.waiting.items()
            if key not in self.answered and self._caller.may_answer(asked.requester)
        }
        if not self._asks:
            return view.has_ended or bool(new)
        for approval_id, asked in new.items():
            if approval_id not in self._asking:
                self._asking[approval_id] = group.create_task(self._ask(approval_id, asked))
        for approval_id in self._asking.keys() - view.waiting.keys():
            self._asking.pop(approval_id).cancel()
        return view.has_ended

    async def _ask(self, approval_id: str, asked: ApprovalAsked) -> None:
        await self.answer(approval_id, await asked_by_request(self._context, asked))

    async def _report_progress(self) -> None:
        """The newest state, as often as a person can read; the SDK sends nothing to a host that sent no token."""
        at = 0.0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(SIGN_OF_LIFE_S):
                    await self._changed.wait()
            self._changed.clear()
            at = max(float(self._view.seq), at + _LITTLE)  # must grow with each notification
            await self._context.session.report_progress(at, None, self._view.line or None)
            await asyncio.sleep(PROGRESS_EVERY_S)
