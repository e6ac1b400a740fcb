"""Steps that wait for a time or for a signal. What they wait for survives the process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from tailrace.flows.definition.definition import Duration, seconds_of
from tailrace.flows.definition.signals import CONTROLS
from tailrace.flows.steps.base import Handler, Params, StepContext
from tailrace.messages import JsonObject


class SleepParams(Params):
    """Either; a template may give the number."""

    seconds: float | None = None
    duration: Duration | None = None


class Sleep(Handler[SleepParams]):
    """Until so long after the step first began, also over restarts."""

    Params = SleepParams
    waits = True

    def mistakes(self, params: JsonObject) -> Iterator[tuple[str, str]]:
        if len(params) != 1:
            yield "", "how long? give seconds or duration"
        yield from super().mistakes(params)

    async def run(self, params: SleepParams, step: StepContext) -> Any:
        output = await self.dry_run(params, step)
        await asyncio.sleep(max(0.0, step.started_at + output["slept_s"] - step.now()))
        return output

    async def dry_run(self, params: SleepParams, _step: StepContext) -> Any:
        return {"slept_s": params.seconds if params.seconds is not None else seconds_of(params.duration or 0.0)}


class WaitSignalParams(Params):
    signal: str


class WaitSignal(Handler[WaitSignalParams]):
    """Until a signal of that name comes; one that came before and was not taken counts. Each is taken once."""

    Params = WaitSignalParams
    waits = True

    def mistakes(self, params: JsonObject) -> Iterator[tuple[str, str]]:
        if isinstance(name := params.get("signal"), str) and name in CONTROLS:
            yield ".signal", f"{name!r} acts on the instance itself and reaches no step: choose another name"
        yield from super().mistakes(params)

    async def run(self, params: WaitSignalParams, step: StepContext) -> Any:
        signal = await step.signals.take_signal(params.signal)
        return {"signal": signal.name, "payload": signal.payload, "by": signal.by, "signal_id": signal.signal_id}

    async def dry_run(self, params: WaitSignalParams, _step: StepContext) -> Any:
        return {"signal": params.signal, "payload": {}, "by": "", "dry_run": True}
