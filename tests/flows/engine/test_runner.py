"""Instances on a journal: order of the record, retries, time-outs, signals, pauses, races, crashes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from flows.stages import FAST_RETRY, Doing, FunctionHandler, ask, sequence, service, spoken, stage, step
from tailrace.errors import RunNotFound, RunSealed, StaleEpoch
from tailrace.events import (
    AnyEvent,
    RunFinished,
    RunStarted,
    SignalReceived,
    StateChanged,
    StepCancelled,
    StepFailed,
    StepFinished,
    StepStarted,
)
from tailrace.flows.definition.definition import DefinitionError
from tailrace.flows.definition.public_ids import run_id_of
from tailrace.flows.engine.service import FlowService
from tailrace.flows.steps.base import StepError
from tailrace.flows.steps.waits import Sleep
from tailrace.journal.memory import MemoryJournal
from tailrace.messages import JsonObject
from tailrace.testing.clock import driven


def now() -> float:
    return asyncio.get_running_loop().time()


def names(events: list[AnyEvent]) -> list[str]:
    return [type(event).__name__ for event in events]


async def log_of(journal: MemoryJournal, run_id: str) -> list[AnyEvent]:
    return [entry.event for entry in await journal.read(run_id)]


async def state_is(flows: FlowService, instance_id: str, state: str) -> None:
    """Returns when the log says so."""
    async for batch in flows.watch(instance_id):
        if any(event.type == "state" and event.data["state"] == state for event in batch):
            return


async def test_every_start_and_output_is_a_fact_and_the_output_is_theirs(tmp_path: Path) -> None:
    journal = MemoryJournal()
    async with service(tmp_path, journal) as flows:
        run = await flows.start(
            sequence(step("a", {"x": "{{input.n}}"}), step("b", {"y": "{{steps.a.output.x}}"})), {"n": 3}
        )
        finished = await flows.finished(run.id)
        assert finished.status == "completed"
        assert finished.output == '{"a":{"x":3},"b":{"y":3}}'
        assert names(await log_of(journal, run.id)) == [
            *("RunStarted", "StateChanged", "StepStarted", "StepFinished", "StepStarted", "StepFinished"),
            *("StateChanged", "RunFinished"),
        ]


async def test_a_failure_that_may_pass_is_tried_again_and_one_that_may_not_is_not(tmp_path: Path) -> None:
    def failing(kind: Any) -> Any:
        def fail(_: JsonObject) -> Any:
            raise StepError("no", kind=kind, code="x")

        return FunctionHandler(Doing(fail))

    journal = MemoryJournal()
    async with service(tmp_path, journal, soft=failing("retryable"), hard=failing("permanent")) as flows:
        for handler, tries in (("soft", 3), ("hard", 1)):
            run = await flows.start(sequence(step("a", handler=handler, retry=FAST_RETRY)))
            finished = await flows.finished(run.id)
            assert finished.status == "failed"
            assert finished.error is not None
            assert finished.error.message == "a: no"
            failed = [event for event in await log_of(journal, run.id) if isinstance(event, StepFailed)]
            assert [event.number for event in failed] == list(range(1, tries + 1))
            assert [event.retry_at is None for event in failed] == [False] * (tries - 1) + [True]


@pytest.mark.parametrize(
    ("retry_if", "tries"),
    [(["x"], 3), (["permanent"], 3), (["y"], 1), ("error.code == 'x' and attempt < 2", 2), ("input.again", 3)],
)
async def test_retry_if_names_kinds_codes_or_a_condition(retry_if: Any, tries: int, tmp_path: Path) -> None:
    def fail(_: JsonObject) -> Any:
        raise StepError("no", code="x")

    doing = Doing(fail)
    async with service(tmp_path, doing=doing) as flows:
        run = await flows.start(sequence(step("a", retry={**FAST_RETRY, "retry_if": retry_if})), {"again": True})
        await flows.finished(run.id)
        assert len(doing.calls) == tries


@driven
async def test_backoff_grows_to_its_limit_and_a_timeout_may_pass(tmp_path: Path) -> None:
    async def hang(_: JsonObject) -> None:
        await asyncio.Event().wait()

    retry = {"max_attempts": 4, "initial_backoff": "10s", "backoff_multiplier": 3, "max_backoff": "1m"}
    doing = Doing(hang)
    journal = MemoryJournal(clock=now)
    known = {"do": FunctionHandler(doing)}
    async with FlowService(journal, known, owner="me", directory=tmp_path, clock=now) as flows:
        began = now()
        run = await flows.start(sequence(step("a", timeout_secs=5, retry=retry)))
        finished = await flows.finished(run.id)
        assert finished.error is not None
        assert (finished.error.kind, finished.error.code) == ("retryable", "timeout")
        assert len(doing.calls) == 4
        waited_s = now() - began - 4 * 5
        assert 0.8 * 100 <= waited_s <= 100.1  # 10 + 30 + 60, each shortened by up to a fifth


async def test_what_is_no_json_and_what_nobody_foresaw_fail_their_step(tmp_path: Path) -> None:
    async with service(tmp_path, doing=Doing(lambda _: object())) as flows:
        run = await flows.start(sequence(step("a")))
        error = (await flows.finished(run.id)).error
        assert error is not None
        assert error.code == "output"
    async with service(tmp_path, doing=Doing(lambda _: 1 / 0)) as flows:
        run = await flows.start(sequence(step("a")))
        error = (await flows.finished(run.id)).error
        assert error is not None
        assert error.message == "a: ZeroDivisionError: division by zero"


async def test_the_environment_shows_what_is_allowed_and_set(tmp_path: Path) -> None:
    async with service(tmp_path) as flows:
        run = await flows.start(sequence(step("a", {"home": "{{env.HOME}}"})))
        assert (await flows.finished(run.id)).output == '{"a":{"home":"/home/me"}}'
        unset = await flows.start(sequence(step("a", {"x": "{{env.NO}}"})))
        error = (await flows.finished(unset.id)).error
        assert error is not None
        assert error.message == "a: there is no env.NO"
        with pytest.raises(DefinitionError, match=r"not listed in flows\.env_allow"):
            await flows.start(sequence(step("a", {"x": "{{env.PATH}}"})))


# ── races and limits ─────────────────────────────────────────────────────────────────────────────────────────


async def test_the_losers_of_a_race_are_cancelled_and_said_to_be(tmp_path: Path) -> None:
    ended: list[str] = []

    async def run_one(params: JsonObject) -> str:
        if params["wait"]:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("cancelled")
        return "won"

    journal = MemoryJournal()
    race = {"type": "race", "id": "r", "branches": [[step("slow", {"wait": True})], [step("fast", {"wait": False})]]}
    async with service(tmp_path, journal, Doing(run_one)) as flows:
        run = await flows.start(sequence(race))
        await flows.finished(run.id)
        assert ended == ["cancelled"]
        assert (await flows.instance(run.id)).outputs == {"fast": "won", "r": "won"}
        cancelled = [event for event in await log_of(journal, run.id) if isinstance(event, StepCancelled)]
        assert cancelled == [StepCancelled("slow")]


async def test_no_more_run_at_once_than_the_limit_says(tmp_path: Path) -> None:
    running, most = 0, 0

    async def count(_: JsonObject) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        running -= 1

    each = {"type": "for_each", "id": "e", "collection": "input.n", "body": [step("s")], "max_concurrency": 3}
    async with service(tmp_path, doing=Doing(count)) as flows:
        run = await flows.start(sequence(each), {"n": list(range(20))})
        await flows.finished(run.id)
        assert most == 3


# ── signals ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_signal_reaches_the_step_that_waits_for_it_and_counts_if_it_came_before(tmp_path: Path) -> None:
    waits = [step(name, {"signal": "go"}, "wait_signal") for name in ("one", "two")]
    async with service(tmp_path) as flows:
        run = await flows.start(sequence(*waits))
        await state_is(flows, run.id, "waiting")
        for number in (1, 2):
            await flows.signal(run.id, "go", {"n": number}, by="ada")
        await flows.finished(run.id)
        outputs = (await flows.instance(run.id)).outputs
        assert [outputs[name]["payload"] for name in ("one", "two")] == [{"n": 1}, {"n": 2}]
        assert outputs["one"]["by"] == "ada"
        with pytest.raises(RunSealed):
            await flows.signal(run.id, "go")


async def test_two_steps_that_wait_for_the_same_signal_get_one_each(tmp_path: Path) -> None:
    branches = [[step(name, {"signal": "go"}, "wait_signal")] for name in ("one", "two")]
    async with service(tmp_path) as flows:
        run = await flows.start(sequence({"type": "parallel", "id": "p", "branches": branches}))
        await state_is(flows, run.id, "waiting")
        await flows.signal(run.id, "go", {"n": 1})
        await flows.signal(run.id, "go", {"n": 2})
        await flows.finished(run.id)
        got = [output["payload"]["n"] for output in (await flows.instance(run.id)).outputs["p"]]
        assert sorted(got) == [1, 2]


async def test_a_pause_stops_the_step_in_flight_and_resume_runs_it_again(tmp_path: Path) -> None:
    begun = asyncio.Event()
    release = asyncio.Event()

    async def wait(_: JsonObject) -> str:
        begun.set()
        await release.wait()
        return "done"

    journal = MemoryJournal()
    doing = Doing(wait)
    async with service(tmp_path, journal, doing) as flows:
        run = await flows.start(sequence(step("a")))
        await begun.wait()
        await flows.signal(run.id, "pause")
        await state_is(flows, run.id, "paused")
        assert (await flows.instance(run.id)).state == "paused"
        release.set()
        await flows.signal(run.id, "resume")
        await flows.finished(run.id)
        assert len(doing.calls) == 2
        started = [event for event in await log_of(journal, run.id) if isinstance(event, StepStarted)]
        assert [event.number for event in started] == [1, 1]


async def test_what_cannot_be_repeated_comes_to_its_end_before_the_pause(tmp_path: Path) -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def once(_: JsonObject) -> str:
        begun.set()
        await release.wait()
        return "done"

    doing = Doing(once)
    async with service(tmp_path, fragile=FunctionHandler(doing, repeatable=False)) as flows:
        run = await flows.start(sequence(step("a", handler="fragile"), step("b")))
        await begun.wait()
        await flows.signal(run.id, "pause")
        await state_is(flows, run.id, "paused")
        release.set()
        async for batch in flows.watch(run.id):
            if any(event.type == "output" for event in batch):
                break
        assert (await flows.instance(run.id)).outputs == {"a": "done"}
        await flows.signal(run.id, "resume")
        await flows.finished(run.id)
        assert len(doing.calls) == 1


async def test_cancel_ends_the_step_in_flight_and_the_instance(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def hang(_: JsonObject) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with service(tmp_path, doing=Doing(hang)) as flows:
        run = await flows.start(sequence(step("a")))
        await state_is(flows, run.id, "running")
        await flows.signal(run.id, "cancel", by="ada")
        finished = await flows.finished(run.id)
        assert finished.status == "stopped"
        assert ended.is_set()
        assert (await flows.instance(run.id)).state == "cancelled"


@driven
async def test_a_sleep_counts_from_its_first_start_whoever_was_alive_in_between(tmp_path: Path) -> None:
    journal = MemoryJournal(clock=now)
    definition = sequence(step("nap", {"duration": "1h"}, "sleep"))
    async with FlowService(journal, {"sleep": Sleep()}, owner="one", directory=tmp_path, clock=now) as flows:
        run = await flows.start(definition)
        began = now()
        await asyncio.sleep(600)
        assert (await flows.instance(run.id)).state == "waiting"
    await asyncio.sleep(600)
    async with FlowService(journal, {"sleep": Sleep()}, owner="two", directory=tmp_path, clock=now) as flows:
        assert await flows.recover() == [run.id]
        await flows.finished(run.id)
        assert 3600 <= now() - began < 3601


# ── crashes ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_stopped_service_gives_its_instances_back_and_the_next_goes_on(tmp_path: Path) -> None:
    journal = MemoryJournal()
    hang = asyncio.Event()
    first = Doing(lambda params: hang.wait() if params["n"] == 2 else "first")
    steps = [step(f"s{n}", {"n": n}) for n in (1, 2, 3)]
    async with service(tmp_path, journal, first) as flows:
        run = await flows.start(sequence(*steps))
        async for batch in flows.watch(run.id):
            if any(event.type == "output" for event in batch):
                break
    second = Doing(lambda _: "second")
    async with service(tmp_path, journal, second) as flows:
        assert (await flows.instance(run.id)).state == "running"
        assert await flows.recover() == [run.id]
        assert await flows.recover() == []
        await flows.finished(run.id)
        assert (await flows.instance(run.id)).outputs == {"s1": "first", "s2": "second", "s3": "second"}
        assert [call["n"] for call in second.calls] == [2, 3]


async def test_I106_a_step_that_cannot_be_repeated_and_was_interrupted_says_so(tmp_path: Path) -> None:
    journal = MemoryJournal()
    hang = Doing(lambda _: asyncio.Event().wait())
    async with service(tmp_path, journal, fragile=FunctionHandler(hang, repeatable=False)) as flows:
        run = await flows.start(sequence(step("a", handler="fragile", retry=FAST_RETRY)))
        async for batch in flows.watch(run.id):
            if any(event.type == "step" for event in batch):
                break
    again = Doing()
    async with service(tmp_path, journal, fragile=FunctionHandler(again, repeatable=False)) as flows:
        await flows.recover()
        error = (await flows.finished(run.id)).error
        assert error is not None
        assert (error.kind, error.code) == ("permanent", "interrupted")
        assert again.calls == []


async def test_a_fenced_runner_stops_and_writes_nothing_more(tmp_path: Path) -> None:
    journal = MemoryJournal()
    release = asyncio.Event()
    async with service(tmp_path, journal, Doing(lambda _: release.wait())) as flows:
        run = await flows.start(sequence(step("a")))
        await state_is(flows, run.id, "running")
        lease = await journal.claim(run.id, "me")  # the same owner may claim again: an older claim is fenced off
        release.set()
        await flows.drain(5)
        assert "StepFinished" not in names(await log_of(journal, run.id))
        with pytest.raises(StaleEpoch):
            journal.append(type(lease)(run.id, lease.epoch - 1, "me"), [StateChanged("failed")])


# ── many, keys, retries, versions ────────────────────────────────────────────────────────────────────────────


async def test_an_idempotency_key_names_one_instance(tmp_path: Path) -> None:
    doing = Doing()
    async with service(tmp_path, doing=doing) as flows:
        one = await flows.start(sequence(step("a")), idempotency_key="k")
        two = await flows.start(sequence(step("a")), idempotency_key="k")
        other = await flows.start(sequence(step("a")), idempotency_key="l")
        assert one.id == two.id != other.id
        await flows.drain(5)
        assert len(doing.calls) == 2


async def test_failed_instances_are_listed_and_go_on_from_the_step_that_failed(tmp_path: Path) -> None:
    broken = True
    doing = Doing(lambda params: 1 / 0 if broken and params.get("n") == 2 else params)
    async with service(tmp_path, doing=doing) as flows:
        version = await flows.create_sequence(sequence(step("a", {"n": 1}), step("b", {"n": 2}), step("c", {"n": 3})))
        run = await flows.start(version)
        await flows.finished(run.id)
        assert [failed.id for failed in await flows.failed()] == [run.id]
        doing.calls.clear()
        broken = False
        again = await flows.retry(run.id)
        assert (await flows.retry(run.id)).id == again.id != run.id
        await flows.finished(again.id)
        instance = await flows.instance(again.id)
        assert instance.state == "completed"
        assert (run_id_of(instance.retry_of), run_id_of(instance.id)) == (run.id, again.id)
        assert (await flows.retry(instance.retry_of)).id == again.id
        assert instance.version == 1
        assert instance.outputs == {"a": {"n": 1}, "b": {"n": 2}, "c": {"n": 3}}
        assert [call["n"] for call in doing.calls] == [2, 3]
        with pytest.raises(DefinitionError, match="has not failed"):
            await flows.retry(again.id)


async def test_versions_are_counted_kept_and_not_made_twice(tmp_path: Path) -> None:
    async with service(tmp_path) as flows:
        first = await flows.create_sequence(sequence(step("a", {"v": 1})))
        same = await flows.create_sequence(sequence(step("a", {"v": 1})))
        second = await flows.create_sequence(sequence(step("a", {"v": 2})))
        assert (first.version, same, second.version) == (1, first, 2)
        old = await flows.start(first)
        new = await flows.start(await flows.library.get(second.id))
        await flows.drain(5)
        assert (await flows.instance(old.id)).outputs == {"a": {"v": 1}}
        assert (await flows.instance(new.id)).outputs == {"a": {"v": 2}}
        assert [version.version for version in await flows.library.list()] == [2, 1]
        with pytest.raises(RunNotFound, match="there is no sequence ins_"):
            await flows.library.get((await flows.instance(old.id)).id)
        assert (first.id[:4], await flows.library.get(run_id_of(first.id))) == ("seq_", first)
        with pytest.raises(RunNotFound):
            await flows.instance(first.id)


async def test_versions_made_at_once_get_numbers_of_their_own(tmp_path: Path) -> None:
    journal = MemoryJournal()
    async with service(tmp_path, journal) as one, service(tmp_path, journal) as two:
        made = await asyncio.gather(
            *(flows.library.add(sequence(step("a", {"v": n}))) for n, flows in enumerate([one, two] * 5))
        )
        assert sorted(version.version for version in made) == list(range(1, 11))


async def test_a_sub_sequence_is_written_into_the_instance_that_names_it(tmp_path: Path) -> None:
    sub = {"type": "sub_sequence", "id": "s", "sequence_name": "inner", "input": {"x": "{{input.x}}"}}
    loop = {"type": "for_each", "id": "e", "collection": "input.n", "body": [sub]}
    async with service(tmp_path) as flows:
        with pytest.raises(DefinitionError, match="no sequence 'inner'"):
            await flows.create_sequence(sequence(loop))
        inner = sequence(step("a", {"got": "{{input.x}}"}))
        await flows.create_sequence(type(inner)(name="inner", blocks=inner.blocks))
        outer = await flows.create_sequence(sequence(loop))
        run = await flows.start(outer, {"n": [1, 2], "x": "y"})
        await flows.finished(run.id)
        assert (await flows.instance(run.id)).outputs["e"] == [{"got": "y"}] * 2
        circle = {**sub, "sequence_name": "outer"}
        await flows.create_sequence(type(inner)(name="outer", blocks=inner.blocks))
        await flows.create_sequence(sequence(circle))
        looped = sequence({**circle, "sequence_name": "test"})
        circular = await flows.create_sequence(type(inner)(name="outer", blocks=looped.blocks))
        with pytest.raises(DefinitionError, match="nested more than 16 deep"):
            await flows.start(circular)


async def test_an_input_that_is_not_what_the_sequence_asks_for_is_refused(tmp_path: Path) -> None:
    schema = {"type": "object", "required": ["city"]}
    async with service(tmp_path) as flows:
        with pytest.raises(DefinitionError, match='"city" is a required property'):
            await flows.start(sequence(step("a"), input_schema=schema), {"town": 1})


async def test_a_viewer_of_one_instance_sees_nothing_of_another(tmp_path: Path) -> None:
    async with stage(tmp_path, "long", "ok") as st:
        one = await st.flows.start(sequence(ask("say", stream=True)))
        two = await st.flows.start(sequence(ask("say", stream=True)))
        seen = await asyncio.gather(st.watch(one.id), st.watch(two.id))
        for run, events in zip((one, two), seen, strict=True):
            content = (await st.flows.instance(run.id)).outputs["say"]["message"]["content"]
            assert spoken(events) == content
        assert spoken(seen[0]) != spoken(seen[1])


async def test_H97_a_viewer_resumes_at_any_event_and_misses_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path, "ok+cut@60%", "ok") as st:
        run = await st.flows.start(sequence(step("a"), ask("say", stream=True, retry=FAST_RETRY)))
        whole = await st.watch(run.id)
        assert [event.seq for event in whole] == sorted({event.seq for event in whole})
        for cut in range(len(whole)):
            assert whole[: cut + 1] + await st.watch(run.id, after=whole[cut].seq) == whole


async def test_the_record_is_complete_and_in_order(tmp_path: Path) -> None:
    journal = MemoryJournal()
    async with service(tmp_path, journal) as flows:
        run = await flows.start(sequence(step("w", {"signal": "go"}, "wait_signal"), step("a")))
        await state_is(flows, run.id, "waiting")
        await flows.signal(run.id, "go", {"n": 1})
        await flows.finished(run.id)
        events = await log_of(journal, run.id)
        assert isinstance(events[0], RunStarted)
        assert isinstance(events[-1], RunFinished)
        kinds = [event for event in events if isinstance(event, SignalReceived | StepFinished | StateChanged)]
        assert names(list(kinds)) == [
            *("StateChanged", "StateChanged", "SignalReceived", "StepFinished", "StateChanged", "StepFinished"),
            "StateChanged",
        ]
