"""What follows a run for its caller: `on_approval` answers its questions, `on_change` is told what happens in it."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias, get_args

from tailrace.app import App
from tailrace.errors import RunSealed
from tailrace.events import ApprovalAsked, Decision
from tailrace.runs.view import RunView
from tailrace.runs.view.changes import Asked, Change, SubRunBegan

log = logging.getLogger("tailrace.api")
Answer: TypeAlias = Decision | bool  # True is "once", False is "deny"
OnApproval: TypeAlias = Callable[[ApprovalAsked], Answer | Awaitable[Answer]]
OnChange: TypeAlias = Callable[[Change], Awaitable[object]]
_DECISIONS: tuple[Decision, ...] = get_args(Decision)


async def follow_run(app: App, run_id: str, on_approval: OnApproval | None, on_change: OnChange | None) -> None:
    """Until the run ends, with the runs of the agents that it calls. Questions of tools that run side by side do not
    wait for each other. What `on_change` raises is logged."""

    async def answer(asked: ApprovalAsked, run_id: str, on_approval: OnApproval) -> None:
        decision = await _decision_of(on_approval, asked)
        with suppress(RunSealed):
            await app.agents.answer(run_id, asked.approval_id, decision, by=asked.requester)

    async def follow(run_id: str) -> None:
        view = RunView()
        async for batch in app.journal.tail(run_id):
            for entry in batch:
                for change in view.apply(entry):
                    if isinstance(change, SubRunBegan) and change.run_id not in followed:
                        followed.add(change.run_id)
                        group.create_task(follow(change.run_id))
                    if isinstance(change, Asked) and on_approval is not None:
                        answers.append(group.create_task(answer(change.question, run_id, on_approval)))
                    if on_change is not None:
                        await _tell(on_change, change)

    followed, answers = {run_id}, list[asyncio.Task[None]]()
    async with asyncio.TaskGroup() as group:
        await follow(run_id)
        for task in answers:
            task.cancel()


async def _tell(on_change: OnChange, change: Change) -> None:
    try:
        await on_change(change)
    except Exception:
        log.exception("on_change raised")


async def _decision_of(on_approval: OnApproval, asked: ApprovalAsked) -> Decision:
    """What the callback says; "deny" where it raises or says something else."""
    try:
        if inspect.iscoroutinefunction(on_approval):
            answer = await on_approval(asked)
        else:
            answer = await asyncio.to_thread(on_approval, asked)
            if inspect.isawaitable(answer):
                answer = await answer
    except Exception:
        log.exception("on_approval raised, so the action is denied: %s", asked.command)
        return "deny"
    if isinstance(answer, bool):
        return "once" if answer else "deny"
    for decision in _DECISIONS:
        if decision == answer:
            return decision
    log.error("on_approval returned %r, which is no decision, so the action is denied: %s", answer, asked.command)
    return "deny"
