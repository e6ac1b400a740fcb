"""Durable model calls for code that has an engine of its own: DBOS, Temporal or anything that executes a step again.

A call is a run of one `llm_call` step, found again by its key. A process that asks a second time gets the recorded
answer, waits for the process that makes it, or goes on in place of one that is gone: the claim fences that one off.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from tailrace.app.costs import Costs
from tailrace.app.flow_handlers import ConfiguredRoutes
from tailrace.app.models import Models
from tailrace.app.usage.ledger import UsageLedger
from tailrace.config.load import Config
from tailrace.errors import ErrorKind, LlmCallError, RunSealed
from tailrace.events import RunFailure, RunFinished
from tailrace.flows.definition.definition import Definition, DefinitionError, parsed
from tailrace.flows.engine.plan import CANCEL
from tailrace.flows.engine.runner import InstanceRunner
from tailrace.flows.engine.service import FlowService, InstanceSpec
from tailrace.flows.steps.base import StepError
from tailrace.flows.steps.llm_call import LlmCall
from tailrace.journal.open_journal import open_journal
from tailrace.messages import JsonObject
from tailrace.ports import Run
from tailrace.providers.call import Caller
from tailrace.providers.transport.http1_transport import open_transport
from tailrace.runs.recovery import ClaimedRun
from tailrace.runs.signals import run_beside
from tailrace.system.private_files import tighten
from tailrace.system.working_directory import working_directory

STEP = "llm_call"  # the handler, the id of the one block, and the name of the sequence
_REQUESTER = "python"  # who asks, as of an `Agent`: so `tailrace usage` calls it
# Parameters that say who is asked: they stand in the definition. All others are data, in which `{{` is a text.
_ADDRESS = frozenset({"provider", "model", "base_url", "api_key_env", "dialect", "providers"})


class LlmCalls:
    """Makes durable model calls. `open_llm_calls` opens it."""

    def __init__(self, flows: _OwnInstances, handler: LlmCall) -> None:
        self._flows = flows
        self._handler = handler

    async def llm_call(
        self,
        *,
        idempotency_key: str,
        on_run: Callable[[str], object] | None = None,
        stop_on_cancel: Callable[[], bool] = lambda: False,
        stream: bool = True,
        **params: Any,
    ) -> JsonObject:
        """The output of the `llm_call` step with these parameters. A call that has this key already is not made again:
        its answer is returned once it is there, whichever process gives it. A call that failed is made anew.

        `on_run` is told the run's id before the first token. Cancelled, the call is left for the next one with the key;
        where `stop_on_cancel` returns True it is stopped instead, at the provider too. Raises `LlmCallError`."""
        if not idempotency_key:
            raise LlmCallError("idempotency_key: is empty", code="params")
        definition, given = self._parsed({**params, "stream": stream})
        run = await self._run_of(idempotency_key, definition, given)
        self._flows.wanted.add(run.id)
        try:
            if on_run is not None:
                on_run(run.id)
            ending = self._flows.finished(run.id)
            return _output(run.id, await run_beside(ending, self._flows.keep_recovering(at_once=True)))
        except asyncio.CancelledError:
            if stop_on_cancel():
                await asyncio.shield(self._stop(run.id))
            raise
        finally:
            self._flows.wanted.discard(run.id)

    def _parsed(self, params: JsonObject) -> tuple[Definition, JsonObject]:
        try:
            self._handler.convert(params)
            given = {name: value for name, value in params.items() if name not in _ADDRESS}
            filled = {**params, **{name: f"{{{{input.{name}}}}}" for name in given}}
            block = {"type": "step", "id": STEP, "handler": STEP, "params": filled}
            definition = parsed({"name": STEP, "blocks": [block]})
            self._flows.check(definition)
        except (StepError, DefinitionError) as exc:
            raise LlmCallError(str(exc), code="params") from exc
        return definition, given

    async def _run_of(self, key: str, definition: Definition, given: JsonObject) -> Run:
        """The run that has the key, or a new one: of a call that failed, its next try."""
        for number in count(1):
            own_key = f"{STEP}/{key}" if number == 1 else f"{STEP}#{number}/{key}"  # no other call's key reads so
            run = await self._flows.start(definition, given, idempotency_key=own_key, requester=_REQUESTER)
            if run.state != "failed":
                return run
        raise AssertionError("count is endless")

    async def _stop(self, run_id: str) -> None:
        try:
            await self._flows.signal(run_id, CANCEL)
        except RunSealed:
            return
        await self._flows.left(run_id)


class _OwnInstances(FlowService):
    """Instances of this module alone. Others are left to `tailrace serve`, which knows every handler."""

    wanted: set[str]

    def _wants(self, run: Run) -> bool:
        return run.id in self.wanted

    def _runner(self, spec: InstanceSpec, claimed: ClaimedRun) -> InstanceRunner:
        runner = super()._runner(spec, claimed)
        runner.audience.join()  # the log is live: viewers come by the run's id, from any process
        return runner


@asynccontextmanager
async def open_llm_calls(config: Config, *, directory: Path | None = None) -> AsyncGenerator[LlmCalls, None]:
    """For many calls over one journal. Leaving gives calls that have not ended back: another process may go on."""
    await asyncio.to_thread(tighten, config.home)
    owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
    async with (
        open_transport(config.transport) as transport,
        open_journal(config.store.url, config.database, password=config.store_password) as journal,
    ):
        models = Models(config, transport)
        usage = UsageLedger(journal, Costs(config))
        handler = LlmCall(Caller(observers=(usage.observe,)), ConfiguredRoutes(models))
        flows = _OwnInstances(
            journal,
            {STEP: handler},
            owner=owner,
            directory=await asyncio.to_thread((directory or working_directory()).resolve),
            lease_s=config.store.lease_s,
            durability="fsync" if config.store.durability == "fsync" else "committed",
        )
        flows.wanted = set()
        try:
            async with usage.running(), flows:
                yield LlmCalls(flows, handler)
        finally:
            await models.local.aclose()


def _output(run_id: str, finished: RunFinished) -> JsonObject:
    if finished.status == "completed":
        outputs: dict[str, JsonObject] = msgspec.json.decode(finished.output)
        return outputs[STEP]
    error = finished.error or RunFailure("permanent", finished.status)
    kind: ErrorKind = "retryable" if error.kind == "retryable" else "permanent"
    raise LlmCallError(error.message.removeprefix(f"{STEP}: "), kind=kind, code=error.code or error.kind, run_id=run_id)
