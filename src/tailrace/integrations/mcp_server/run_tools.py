"""Runs as tools: start, watch, stop, steer, answer an approval, list.

Owns what a call of each does. What the model of the host can put right is a result with `isError`, in words.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from mcp.server.context import ServerRequestContext
from mcp_types import CallToolRequestParams, CallToolResult, InputRequiredResult, TextContent, Tool, ToolAnnotations

from tailrace.agent.endings import not_executed_in
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import App
from tailrace.app.timeline.run_overview import OWN_RECORDS
from tailrace.errors import CursorAhead, RunNotFound, RunSealed, TailraceError
from tailrace.integrations.mcp_server import approvals, run_report
from tailrace.integrations.mcp_server.host_view import HostView
from tailrace.integrations.mcp_server.stdio import Cancelled
from tailrace.integrations.mcp_server.watch import RunWatch, read_view
from tailrace.messages import JsonObject, user
from tailrace.ports import ENDED, Run, RunState
from tailrace.server.frontends.conversations import require_steering
from tailrace.server.http.auth import Identity
from tailrace.server.http.session_access import check_session
from tailrace.server.v1.model_target import turn_model
from tailrace.tools.typed import Arguments, invalid_arguments, schema_of

StartTask: TypeAlias = Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]
Context: TypeAlias = ServerRequestContext[Any, Any]
Result: TypeAlias = CallToolResult | InputRequiredResult
log = logging.getLogger("tailrace.mcp")
SETTLE_S: Final = 20.0  # for a run to end after a stop, or to take an answer; another process may have it
_TIMED_OUT: Final = re.compile(r"time[sd]?[ -]?out", re.IGNORECASE)


class _RunTool(NamedTuple):
    arguments: type[Arguments]
    result: type[msgspec.Struct]
    annotations: ToolAnnotations
    title: str  # this and the description: from `run_tools.toml`
    description: str


_ACTS = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True)
_STOPS = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)
_STEERS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False)
_READS = ToolAnnotations(read_only_hint=True)
_TEXTS: Final = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=dict[str, dict[str, str]])
_SHAPES: Final[dict[str, tuple[type[Arguments], type[msgspec.Struct], ToolAnnotations]]] = {
    "start_run": (run_report.StartRun, run_report.RunReport, _ACTS),
    "watch_run": (run_report.WatchRun, run_report.RunReport, _READS),
    "stop_run": (run_report.StopRun, run_report.RunReport, _STOPS),
    "steer_run": (run_report.SteerRun, run_report.SteerReport, _STEERS),
    "answer_approval": (run_report.AnswerApproval, run_report.RunReport, _ACTS),
    "list_runs": (run_report.ListRuns, run_report.RunPage, _READS),
}
TOOLS: Final = {
    name: _RunTool(*shape, _TEXTS[name]["title"], _TEXTS[name]["description"]) for name, shape in _SHAPES.items()
}


class RunTools:
    """The tools of one host. `cancelled` knows what it cancelled. `defaults` is the spec of its turns, but for the
    question and a model that a call names."""

    def __init__(
        self,
        app: App,
        caller: Identity,
        defaults: TurnSpec,
        cancelled: Cancelled,
        start: StartTask,
        admit: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """What must not be cut short by a cancelled call is a task that `start` makes. `admit` raises `TailraceError`
        for a new run over a limit of the caller's key."""
        self._app = app
        self._journal = app.journal
        self._caller = caller
        self._defaults = msgspec.structs.replace(defaults, requester=caller.name, reachable=True)
        self._cancelled = cancelled
        self._start_task = start
        self._admit = admit

    def described(self) -> list[Tool]:
        return [
            Tool(
                name=name,
                title=tool.title,
                description=tool.description,
                input_schema=schema_of(tool.arguments),
                output_schema=run_report.OUTPUT_SCHEMAS[tool.result],
                annotations=tool.annotations,
            )
            for name, tool in TOOLS.items()
        ]

    async def call(self, context: Context, params: CallToolRequestParams) -> Result:
        given: JsonObject = params.arguments or {}
        tool = TOOLS.get(params.name)
        if tool is None:
            return _failed(f"there is no tool named {params.name!r}; there are: {', '.join(TOOLS)}")
        if problem := invalid_arguments(given, tool.arguments):
            return _failed(problem)
        try:
            return await self._called(context, params, msgspec.convert(given, tool.arguments, strict=False))
        except RunNotFound as exc:
            return _failed(f"{exc}; list_runs lists those that there are")
        except TailraceError as exc:
            return _failed(str(exc))
        finally:
            self._cancelled.forget(context.request_id)

    async def _called(self, context: Context, params: CallToolRequestParams, args: Arguments) -> Result:
        match args:
            case run_report.StartRun():
                return await self._start(context, params, args)
            case run_report.WatchRun(run_id=run_id, after=after, wait_s=wait_s):
                return await self._watched(context, params, run_id, after=after, wait_s=wait_s)
            case run_report.StopRun(run_id=run_id):
                return await self._stop(run_id)
            case run_report.SteerRun(run_id=run_id, message=message):
                return await self._steer(run_id, message)
            case run_report.AnswerApproval():
                return await self._answer(args)
            case run_report.ListRuns():
                return await self._list(args)
            case _:
                raise TypeError(args)

    # ── start and watch ──────────────────────────────────────────────────────────────────────────────────────

    async def _start(self, context: Context, params: CallToolRequestParams, args: run_report.StartRun) -> Result:
        """A call that comes again with answers goes on with the run that it started."""
        if params.request_state is not None:
            run_id, _ = approvals.run_in(params.request_state)
            starting: Awaitable[Run] = self._journal.get(run_id)
        else:
            starting = self._submit(args)
        begun = self._start_task(_outcome(starting))
        try:
            run = await asyncio.shield(begun)
            if isinstance(run, TailraceError):
                raise run
            try:
                return await self._watched(context, params, run.id, after=0, wait_s=args.wait_s)
            except TailraceError as exc:  # without the id a model would start it once more
                raise TailraceError(f"run {run.id} has begun and goes on, but {exc}; watch_run shows it") from exc
        except asyncio.CancelledError:
            self._on_cancelled(context, begun)
            raise

    async def _submit(self, args: run_report.StartRun) -> Run:
        if not args.question.strip():
            raise TailraceError("nothing was asked: question is empty")
        check_session(args.session, self._caller, "session")
        model = turn_model(self._app, args.model or self._defaults.model, self._caller)
        if self._admit is not None:
            await self._admit()
        spec = msgspec.structs.replace(self._defaults, message=user(args.question), model=model)
        return await self._app.agents.submit(spec, session=args.session)

    def _on_cancelled(self, context: Context, begun: asyncio.Task[Run | TailraceError]) -> None:
        """The host cancelled the call, so its run is stopped; but not where the host merely waited no longer, nor where
        it is gone: the run then goes on."""
        reason = self._cancelled.reason_of(context.request_id)
        if reason is None or _TIMED_OUT.search(reason):
            return

        async def stop() -> None:
            run = await begun
            if not isinstance(run, TailraceError):
                await _outcome(self._app.agents.stop(run.id, by=self._caller.name))

        self._start_task(stop())

    async def _watched(
        self, context: Context, params: CallToolRequestParams, run_id: str, *, after: int, wait_s: float | None
    ) -> Result:
        run = await self._journal.get(run_id)
        if after > run.last_seq:
            raise CursorAhead(f"run {run_id} has {run.last_seq} entries and `after` says {after}; 0 gives all of it")
        view = await read_view(self._journal, run_id, after)
        watch = RunWatch(self._app, context, run_id, view, self._caller)
        rounds = 0
        if params.request_state is not None:
            _, rounds = approvals.run_in(params.request_state)
            for approval_id, decision in approvals.answers_in(params.input_responses).items():
                if self._may_answer(view, approval_id):
                    await watch.answer(approval_id, decision)
        try:
            async with asyncio.timeout(wait_s):
                await watch.follow()
        except TimeoutError:
            pass
        open_now = view.waiting.keys() - watch.answered
        waiting = {key: asked for key, asked in view.waiting.items() if key in open_now and self._may_answer(view, key)}
        if (
            waiting
            and rounds < approvals.MAX_ROUNDS
            and approvals.has_elicitation(context)
            and not context.session.can_send_request
        ):
            return approvals.questions(run_id, waiting, rounds)
        return await self._reported(run_id, view)

    async def _reported(self, run_id: str, view: HostView) -> CallToolResult:
        not_executed = not_executed_in(await self._journal.facts(run_id)) if view.has_ended else ()
        report = run_report.report_of(await self._journal.get(run_id), view, self._caller, not_executed)
        is_error = report.status in ("failed", "parked")
        return _result(report, run_report.in_words(report), is_error=is_error)

    def _may_answer(self, view: HostView, approval_id: str) -> bool:
        asked = view.waiting.get(approval_id)
        return asked is not None and self._caller.may_answer(asked.requester)

    # ── the others ───────────────────────────────────────────────────────────────────────────────────────────

    async def _stop(self, run_id: str) -> CallToolResult:
        await self._journal.get(run_id)
        await self._app.agents.stop(run_id, by=self._caller.name)
        return await self._reported(run_id, await self._settled(run_id, lambda view: view.has_ended))

    async def _steer(self, run_id: str, message: str) -> CallToolResult:
        if not message.strip():
            raise TailraceError("nothing was said: message is empty")
        require_steering(self._app, await self._journal.get(run_id), self._caller)
        steer = await self._app.steering.steer(run_id, message, by=self._caller.name)
        report = run_report.SteerReport(run_id, steer.accepted.steer_id)
        return _result(report, f"run {run_id} has the message")

    async def _answer(self, args: run_report.AnswerApproval) -> CallToolResult:
        run = await self._journal.get(args.run_id)
        if run.state in ENDED:
            raise RunSealed(f"run {run.id} has ended: {run.state}")
        view = await read_view(self._journal, run.id)
        asked = view.waiting.get(args.approval_id)
        if asked is None:
            there_are = ", ".join(view.waiting) or "none"
            raise TailraceError(f"run {run.id} has no open approval {args.approval_id}; open: {there_are}")
        self._caller.require_answer(asked.requester)
        reason, by = args.reason if args.decision == "deny" else "", self._caller.name
        await self._app.agents.answer(run.id, args.approval_id, args.decision, by=by, reason=reason, authorised=True)
        return await self._reported(
            run.id, await self._settled(run.id, lambda view: args.approval_id not in view.waiting)
        )

    async def _settled(self, run_id: str, is_so: Callable[[HostView], bool]) -> HostView:
        """The run once this is so. Gives up after a while: its process may hang."""
        view = HostView()
        try:
            async with asyncio.timeout(SETTLE_S):
                async for batch in self._journal.tail(run_id):
                    view.feed(batch)
                    if is_so(view):
                        break
        except TimeoutError:
            pass
        return view

    async def _list(self, args: run_report.ListRuns) -> CallToolResult:
        states: tuple[RunState, ...] | None = ("pending", "running", "parked") if args.unfinished else None
        page = await self._journal.runs(
            session=args.session or None, states=states, before=args.before or None, limit=args.limit
        )
        shown = (run_report.line_of(run) for run in page if run.new.kind not in OWN_RECORDS)
        listed = run_report.RunPage(tuple(shown), page[-1].id if len(page) == args.limit else "")
        lines = [f"{run.run_id}  {run.status}  {run.question or run.kind}" for run in listed.runs]
        return _result(listed, "\n".join(lines) or "there are no runs")


async def _outcome(work: Awaitable[Any]) -> Any:
    """What it returns, or the error that it raises: a task that raises it would end the server."""
    try:
        return await work
    except TailraceError as exc:
        return exc
    except Exception as exc:  # the top of a task
        log.exception("a call of a tool failed")
        return TailraceError(f"{type(exc).__name__}: {exc}")


def _result(value: msgspec.Struct, text: str, *, is_error: bool = False) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(text=text)], structured_content=msgspec.to_builtins(value), is_error=is_error
    )


def _failed(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)], is_error=True)
