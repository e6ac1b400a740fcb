"""Approvals of runs that this editor does not show, asked in the session where its user is (N168)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Final

from tailrace.app import App
from tailrace.app.approvals import QuestionsElsewhere, WaitingApproval
from tailrace.app.timeline.question import question_of
from tailrace.errors import TailraceError
from tailrace.events import ApprovalAnswered
from tailrace.integrations.acp import tool_updates
from tailrace.integrations.acp.editor import Editor
from tailrace.integrations.acp.log_to_updates import question_content, update_line
from tailrace.runs.signals import FlatTaskGroup
from tailrace.tools.typed import preview_line

log = logging.getLogger("tailrace.integrations.acp")
REQUESTER: Final = "editor"  # who answers the approvals of an editor's runs: the user at this machine


async def ask_elsewhere(app: App, editor: Editor, sessions: Collection[str]) -> None:
    """Until it is cancelled. `sessions` are open, the one that was used last at the end."""
    questions = QuestionsElsewhere(app.agents, app.waiting, app.config, REQUESTER, lambda: app.stored_keys)
    try:
        async with FlatTaskGroup() as group:
            await questions.watch(_EditorQuestions(editor, sessions, questions, group))
    except TailraceError as exc:
        log.warning("questions of other runs are not asked in the editor any more: %s", exc)


class _EditorQuestions:
    def __init__(
        self, editor: Editor, sessions: Collection[str], questions: QuestionsElsewhere, group: asyncio.TaskGroup
    ) -> None:
        self._editor = editor
        self._sessions = sessions
        self._questions = questions
        self._group = group
        self._asking: dict[str, tuple[str, asyncio.Task[None]]] = {}  # by approval: the session, and the request

    def ask(self, waiting: WaitingApproval) -> None:
        for session in list(self._sessions)[-1:]:
            task = self._group.create_task(self._ask(session, waiting))
            self._asking[waiting.asked.approval_id] = session, task

    def take_away(self, waiting: WaitingApproval, answer: ApprovalAnswered | None) -> None:
        key = waiting.asked.approval_id
        if key not in self._asking:
            return
        session, task = self._asking.pop(key)
        task.cancel()
        status = "failed" if answer is None or answer.decision == "deny" else "completed"
        ended = {"sessionUpdate": "tool_call_update", "toolCallId": key, "status": status}
        self._group.create_task(self._editor.write(update_line(session, ended)))

    async def _ask(self, session: str, waiting: WaitingApproval) -> None:
        run, asked = waiting
        call = {
            "toolCallId": asked.approval_id,
            "title": f"another run asks: {preview_line(question_of(run))}",
            "kind": tool_updates.kind_of(asked.tool_name),
            "status": "pending",
            "content": question_content(asked),
        }
        await self._editor.write(update_line(session, {"sessionUpdate": "tool_call", **call}))
        decision = await self._editor.ask_permission(session, call)
        try:
            if decision is not None:  # an editor that cannot ask decides nothing: others are asked too
                await self._questions.answer(asked.approval_id, decision)
        except TailraceError as exc:
            log.warning("an approval cannot be answered: %s", exc)
