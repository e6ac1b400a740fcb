"""An agent as a tool of another one: each call is a run of its own in the same journal.

It belongs to its call: its key is made of the calling run and the call's number, so that a resumed call finds it again;
its usage is charged to the caller's key, and it stops with its caller. It may use at most what its caller has left,
and its usage counts against the caller's limits too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import chain
from typing import TypeVar

import msgspec

from tailrace.agent.service import AgentService
from tailrace.agent.turn_spec import TurnSpec
from tailrace.events import SubRunStarted, ToolCallChunk, UsageRecorded
from tailrace.messages import ToolSpec, user
from tailrace.ports import CallContext, Journal, Run, Tool, ToolContext, ToolOutcome
from tailrace.runs.recovery import finished
from tailrace.runs.signals import run_beside
from tailrace.runs.view import RunView, changes
from tailrace.tools.typed import Arguments, TypedTool, failed, schema_of

N = TypeVar("N", int, float)


class SubAgentArguments(Arguments):
    input: str


class SubAgent(TypedTool[SubAgentArguments]):
    """The tool. `turn` is what each of its runs is made from."""

    Args = SubAgentArguments
    repeatable = True  # the run that has begun goes on
    parallel = True

    def __init__(self, name: str, description: str, turn: TurnSpec) -> None:
        self.spec = ToolSpec(name, description, schema_of(SubAgentArguments))
        self.turn = turn

    async def execute(self, _args: SubAgentArguments, _context: ToolContext) -> ToolOutcome:
        return failed("An agent is called by a turn alone.")


def called_by(
    run: Run, spec: TurnSpec, tools: Mapping[str, Tool], agents: AgentService, journal: Journal
) -> dict[str, Tool]:
    """The tools for the calls of this run."""
    return {
        name: CalledAgent(tool, agents, journal, run, spec) if tool.__class__ is SubAgent else tool
        for name, tool in tools.items()
    }


class CalledAgent(SubAgent):
    """The tool, for the calls of one run."""

    def __init__(self, tool: SubAgent, agents: AgentService, journal: Journal, caller: Run, spec: TurnSpec) -> None:
        super().__init__(tool.spec.name, tool.spec.description, tool.turn)
        self._agents = agents
        self._journal = journal
        self._caller = caller
        self._caller_spec = spec

    async def execute(self, args: SubAgentArguments, context: ToolContext) -> ToolOutcome:
        if not isinstance(context, CallContext):
            return await super().execute(args, context)
        run = await self._begun(args.input, context)
        context.record(SubRunStarted(run.id, self.spec.name, context.call_index))
        try:
            await run_beside(self._agents.see_to_end(run.id), self._show(run, context))
        except asyncio.CancelledError:
            if context.is_stopped():
                await asyncio.shield(self._agents.stop(run.id, by=self._caller_spec.requester))
            raise
        end = await finished(self._journal, run.id)
        for each in end.spent or ():  # committed together with the call's output, so once, also after a crash
            context.record(UsageRecorded(each.usage, each.provider, each.model))
        words = end.output or (end.error.message if end.error is not None else end.status)
        return ToolOutcome(words, ok=end.status == "completed")

    async def _begun(self, text: str, context: CallContext) -> Run:
        caller, budget = self._caller_spec, context.budget()
        spec = msgspec.structs.replace(
            self.turn,
            message=user(text),
            max_turns=_least(self.turn.max_turns, budget.turns),
            max_tokens=_least(self.turn.max_tokens, budget.tokens),
            max_usd=_least(self.turn.max_usd, budget.usd),
            directory=self.turn.directory or caller.directory,
            requester=caller.requester,
            requester_name=caller.requester_name,
            reachable=caller.reachable,
            yolo=caller.yolo,
            plan=caller.plan,
            origin=caller.origin,
        )
        key = f"call/{self._caller.id}/{context.call_index}"
        return await self._agents.submit(spec, idempotency_key=key, durability=self._caller.new.durability)

    async def _show(self, run: Run, context: CallContext) -> None:
        """What it calls and asks is the progress of the call that it belongs to. A resumed run has shown the first."""
        view = RunView()
        async for batch in self._journal.tail(run.id, after=run.last_seq):
            for change in chain.from_iterable(map(view.apply, batch)):
                if isinstance(change, changes.CallRuns):
                    line = f"{change.tool_name} {change.preview or ''}".rstrip()
                elif isinstance(change, changes.Asked):
                    line = f"approval needed: {change.question.command}"
                else:
                    continue
                context.record(ToolCallChunk(self.spec.name, line, index=context.call_index))


def _least(own: N | None, left: N | None) -> N | None:
    return min((each for each in (own, left) if each is not None), default=None)
