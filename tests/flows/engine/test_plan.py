"""The plan as playbooks: apply these facts, ask what is due. Every block, and a crash after every fact."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.plans import Driver, sequence, step
from tailrace.events import (
    AttemptDiscarded,
    AttemptStarted,
    Entry,
    RunFailure,
    SignalReceived,
    StepFailed,
    StepFinished,
    StepStarted,
)
from tailrace.flows.engine.plan import Plan, facts_to_keep
from tailrace.messages import JsonObject

BROKEN = RunFailure("permanent", "broken", "code")
PARALLEL = {"type": "parallel", "id": "p", "branches": [[step("a"), step("b")], [step("c")]]}
RACE = {"type": "race", "id": "r", "branches": [[step("x"), step("y")], [step("z")]]}
EACH = {"type": "for_each", "id": "e", "collection": "input.items", "body": [step("s", "{{item}}-{{index}}")]}


def failing(*paths: str) -> Any:
    return lambda path, params: BROKEN if path in paths else params.get("say", path)


def due(plan: Plan, now: float = 0.0) -> list[str]:
    return [command.block_id for command in plan.due(now)]


def test_steps_run_one_after_another_and_see_what_came_before() -> None:
    driver = Driver(sequence(step("a", "{{input.n}}"), step("b", "{{steps.a.output}}!")), given={"n": 7})
    assert due(driver.plan) == ["a"]
    driver.run()
    assert driver.plan.settled
    assert driver.plan.outputs == driver.plan.step_outputs == {"a": 7, "b": "7!"}
    assert due(driver.plan) == []


def test_parallel_branches_are_due_together_and_give_their_outputs_in_order() -> None:
    driver = Driver(sequence(PARALLEL, step("d", "{{steps.p.output}}")))
    assert due(driver.plan) == ["a", "c"]
    driver.run(lambda n: n - 1)
    assert driver.calls == ["c", "a", "b", "d"]
    assert driver.plan.outputs["d"] == ["b", "c"]


def test_the_first_failure_of_a_parallel_block_withdraws_the_others() -> None:
    driver = Driver(sequence(PARALLEL), failing("c"))
    started = driver.start("a"), driver.start("c")
    driver.end(started[1])
    assert driver.plan.settled
    assert driver.plan.failure is not None
    assert driver.plan.failure.block_id == "c"
    assert driver.plan.withdrawn() == ["a"]
    assert driver.plan.withdrawn() == []


def test_a_race_is_won_by_the_first_success_and_its_losers_are_withdrawn() -> None:
    driver = Driver(sequence(RACE), failing("x"))
    driver.start("x")
    driver.end(driver.start("z"))
    assert driver.plan.outputs == {"z": "z", "r": "z"}
    assert driver.plan.withdrawn() == ["x"]
    assert not driver.plan.is_open("x")
    driver.record(StepFailed("x", BROKEN))  # a result that comes too late changes nothing
    assert driver.plan.settled
    assert driver.plan.failure is None


def test_a_failed_branch_does_not_decide_a_race_and_all_of_them_do() -> None:
    assert Driver(sequence(RACE), failing("x")).run().plan.outputs["r"] == "z"
    failed = Driver(sequence(RACE), failing("y", "z")).run().plan
    assert failed.failure is not None
    assert failed.failure.block_id == "y"


def test_for_each_runs_so_many_at_once_and_keeps_the_order() -> None:
    driver = Driver(sequence({**EACH, "max_concurrency": 2}), given={"items": ["a", "b", "c"]})
    assert due(driver.plan) == ["e[0].s", "e[1].s"]
    driver.run(lambda n: n - 1)
    assert driver.calls == ["e[1].s", "e[2].s", "e[0].s"]
    assert driver.plan.outputs["e"] == ["a-0", "b-1", "c-2"]


@pytest.mark.parametrize("given", [{"items": "abc"}, {}, {"items": None}])
def test_what_is_no_list_fails_the_block_and_names_it(given: JsonObject) -> None:
    plan = Driver(sequence(EACH), given=given).plan
    assert plan.failure is not None
    assert plan.failure.block_id == "e"
    assert plan.failure.error.code == "template"


def test_an_empty_list_is_done_at_once_however_many_there_are() -> None:
    blocks = [{**EACH, "id": f"e{n}", "body": [step(f"s{n}")]} for n in range(2000)]
    assert Driver(sequence(*blocks), given={"items": []}).plan.settled


def test_a_loop_goes_on_while_its_condition_holds_over_the_last_iteration() -> None:
    loop = {
        "type": "loop",
        "id": "l",
        "condition": "steps.n.output != 'n2'",
        "body": [step("n", "n{{index}}"), step("m", "{{steps.n.output}}")],
    }
    plan = Driver(sequence(loop, step("after", "{{steps.m.output}}"))).run().plan
    assert plan.step_outputs == {**{f"l[{n}].{name}": f"n{n}" for n in range(3) for name in ("n", "m")}, "after": "n2"}
    assert plan.outputs["l"] == "n2"


def test_a_loop_sees_what_its_steps_gave_the_time_before_and_stops_at_its_limit() -> None:
    body = [step("n", "{{steps.n.output ?? 'start'}}+")]
    plan = Driver(sequence({"type": "loop", "id": "l", "max_iterations": 3, "body": body})).run().plan
    assert plan.outputs["l"] == "start+++"
    never = {"type": "loop", "id": "l", "condition": "false", "body": body}
    assert Driver(sequence(never)).plan.settled


@pytest.mark.parametrize(("plan", "way"), [("pro", "a"), ("trial", "b"), ("other", "c")])
def test_a_router_takes_the_first_route_that_holds(plan: str, way: str) -> None:
    router = {
        "type": "router",
        "id": "r",
        "routes": [
            {"condition": "input.plan == 'pro'", "blocks": [step("a")]},
            {"condition": "{{ input.plan in 'pro trial' }}", "blocks": [step("b")]},
        ],
        "default": [step("c")],
    }
    driver = Driver(sequence(router), given={"plan": plan}).run()
    assert driver.calls == [way]
    assert driver.plan.outputs["r"] == way


TRY: JsonObject = {
    "type": "try_catch",
    "id": "t",
    "try_block": [step("a"), step("b")],
    "catch_block": [step("c", "{{error.block_id}} {{error.kind}} {{error.code}} {{error.message}}")],
    "finally_block": [step("d")],
}


@pytest.mark.parametrize(
    ("fails", "calls", "output"),
    [
        ((), ["a", "b", "d"], "b"),
        (("b",), ["a", "b", "c", "d"], "b permanent code broken"),
        (("a", "c"), ["a", "c", "d"], "c"),
        (("d",), ["a", "b", "d"], "d"),
        (("a", "c", "d"), ["a", "c", "d"], "d"),
    ],
)
def test_try_catch_and_finally(fails: tuple[str, ...], calls: list[str], output: str) -> None:
    driver = Driver(sequence(TRY), failing(*fails)).run()
    assert driver.calls == calls
    failure = driver.plan.failure
    assert driver.plan.outputs.get("t", failure.block_id if failure else None) == output


def test_without_a_catch_the_failure_stays_one() -> None:
    driver = Driver(sequence({**TRY, "catch_block": []}), failing("a")).run()
    assert driver.calls == ["a", "d"]
    assert driver.plan.failure is not None


def test_a_sub_sequence_knows_its_own_input_and_steps() -> None:
    inner = [step("a", "{{input.x}}"), step("b", "{{steps.a.output}}?")]
    sub = {"type": "sub_sequence", "id": "s", "input": {"x": "{{steps.a.output}}!"}, "blocks": inner}
    plan = Driver(sequence(step("a", "hi"), sub, step("z", "{{steps.s.output}}"))).run().plan
    assert plan.step_outputs == {"a": "hi", "s.a": "hi!", "s.b": "hi!?", "z": "hi!?"}


# ── tries, pauses and signals ────────────────────────────────────────────────────────────────────────────────


def test_a_try_that_failed_is_due_again_at_its_time() -> None:
    driver = Driver(sequence(step("a")))
    driver.start("a")
    driver.record(StepFailed("a", BROKEN, 1, retry_at=50.0))
    assert due(driver.plan) == []
    assert driver.plan.next_at() == 50.0
    assert driver.plan.state() == "waiting"
    (command,) = driver.plan.due(50.0)
    assert (command.number, command.started_at, command.interrupted) == (2, None, False)


def test_a_step_that_was_interrupted_is_the_same_try_with_its_first_start() -> None:
    driver = Driver(sequence(step("a")))
    driver.record(StepStarted("a", 1, 10.0))
    driver.plan.apply(AttemptStarted("p", "m", "a"), 3)
    driver.plan.interrupt()
    (command,) = driver.plan.due(0.0)
    assert (command.number, command.started_at, command.interrupted) == (1, 10.0, True)
    assert (command.attempts, command.open_attempt) == (3, 3)
    driver.record(StepStarted("a", 1, 20.0))
    driver.plan.apply(AttemptDiscarded("", "a"), 3)
    driver.plan.interrupt("a")
    (command,) = driver.plan.due(0.0)
    assert (command.started_at, command.attempts, command.open_attempt) == (10.0, 3, 0)


def test_nothing_is_due_while_paused_and_everything_after() -> None:
    driver = Driver(sequence(step("a")))
    driver.record(SignalReceived(1, "pause"))
    assert due(driver.plan) == []
    assert driver.plan.state() == "paused"
    driver.record(SignalReceived(2, "resume"))
    assert due(driver.plan) == ["a"]
    assert driver.plan.last_signal == 2
    driver.record(SignalReceived(3, "cancel"))
    assert driver.plan.stopped
    assert due(driver.plan) == []


def test_an_instance_that_only_waits_says_so() -> None:
    plan = Plan(sequence({**PARALLEL, "branches": [[step("a", handler="sleep")], [step("b")]]}), {}, waiting=["sleep"])
    for name in ("a", "b"):
        plan.apply(StepStarted(name))
    assert plan.state() == "running"
    plan.apply(StepFinished("b"))
    assert plan.state() == "waiting"


def test_a_signal_is_kept_until_a_step_has_taken_it() -> None:
    driver = Driver(sequence(step("a"), step("b")), lambda path, _: {"signal_id": 5, "payload": {}})
    driver.record(SignalReceived(4, "go", {"n": 1}))
    driver.record(SignalReceived(5, "go"))
    driver.end(driver.start("a"))
    assert [signal.signal_id for signal in driver.plan.signals] == [4]


# ── crashes and retries ──────────────────────────────────────────────────────────────────────────────────────

EVERYTHING = sequence(
    step("first", "{{input.n}}"),
    PARALLEL,
    {**EACH, "body": [step("s", "{{item}}-{{index}}"), step("q")], "max_concurrency": 2},
    RACE,
    {"type": "loop", "id": "l", "condition": "index < 2", "body": [step("lb", "{{index}}")]},
    {**TRY, "id": "t", "try_block": [step("ta")], "catch_block": [step("tc", "{{error.code}}")], "finally_block": []},
    {"type": "sub_sequence", "id": "s", "input": {"v": "{{steps.p.output}}"}, "blocks": [step("a", "{{input.v}}")]},
)


@given(st.integers(0, 2**32), st.integers(0, 200))
def test_whatever_the_order_a_crash_changes_nothing_and_no_finished_step_runs_again(seed: int, at: int) -> None:
    chance = random.Random(seed)
    given_input = {"n": 1, "items": ["u", "v", "w"]}
    whole = Driver(EVERYTHING, failing("ta", "x"), given_input).run(chance.randrange)
    assert whole.plan.settled
    assert whole.plan.failure is None
    crashed = whole.after_crash(min(at, len(whole.facts)))
    done = set(crashed.plan.step_outputs)
    crashed.run(chance.randrange)
    assert crashed.plan.outputs == whole.plan.outputs
    assert not done & set(crashed.calls)


def test_what_a_failed_instance_achieved_is_kept_for_its_retry() -> None:
    blocks = sequence(step("y"), {**TRY, "catch_block": [step("c")], "finally_block": []}, step("z"))
    failed = Driver(blocks, failing("b", "z")).run()
    assert failed.plan.failure is not None
    entries = [Entry(seq, fact) for seq, fact in enumerate(failed.facts, 1)]
    kept = facts_to_keep(blocks, {}, entries)
    assert [getattr(fact, "block_id", "") for fact in kept] == ["y", "a", "b", "c"]
    again = Driver(blocks)
    for fact in kept:
        again.record(fact)
    assert due(again.plan) == ["z"]
    again.run()
    assert again.calls == ["z"]
    assert again.plan.failure is None
