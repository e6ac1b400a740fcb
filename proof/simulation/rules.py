"""The rules that every world must keep, checked on what it has stored and on what its people and peers have seen.

Each function returns the rules that were broken, in words. None of them knows how a world came about.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from proof.simulation.chat_service import ChatService
from proof.simulation.model_server import HARMLESS, PERMANENT, SimulatedProvider, answer_text, tool_arguments
from proof.simulation.node import MAX_ATTEMPTS, Node
from proof.simulation.people import People
from proof.simulation.store import Store
from proof.simulation.tools import ToolRun
from proof.simulation.world import Ask, Hang, Kill, Leave, Said, Steer, Stop, StoreFault, World
from tailrace.agent.endings import without_warning
from tailrace.events import (
    AnyEvent,
    AttemptStarted,
    Entry,
    LlmDelta,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    RunFinished,
    SteerAccepted,
    SteerCommitted,
    SteerReturned,
    ToolCallChunk,
    ToolOutputRecorded,
    UsageRecorded,
    to_json,
)
from tailrace.journal.fold import DELIVERY, fold
from tailrace.messages import Usage
from tailrace.ports import Run


class Simulation(Protocol):
    """What the rules are checked on: a world that is over."""

    world: World
    store: Store
    provider: SimulatedProvider
    chat: ChatService
    people: People
    nodes: list[Node]
    runs_of_tools: list[ToolRun]


DEATHS_BEFORE_PARKED = 3


def broken_rules(simulation: Simulation) -> list[str]:
    runs = {run.id: run for run in simulation.store.runs()}
    logs = {run_id: simulation.store.log(run_id) for run_id in runs}
    numbers = _questions(simulation, runs)
    found: list[str] = [*simulation.provider.broken]
    for run_id, run in runs.items():
        found += (f"{run.new.kind} {_name(numbers, run_id)}: {rule}" for rule in _log_rules(run, logs[run_id]))
        if (number := numbers.get(run_id)) is not None:
            ask = simulation.world.asks[number - 1]
            found += (f"question {number}: {rule}" for rule in _end_rules(simulation, number, ask, run))
            found += (f"question {number}: {rule}" for rule in _budget_rules(simulation, number, run, logs[run_id]))
    found += _acknowledged(simulation, runs, numbers)
    found += _steer_rules(simulation, runs, logs)
    found += _tool_rules(simulation, runs, logs, numbers)
    found += _viewer_rules(simulation, logs)
    found += _chat_rules(simulation, runs, numbers)
    found += _spent_rules(simulation)
    found += _leftovers(simulation)
    return found


def _name(numbers: dict[str, int], run_id: str) -> str:
    return f"of question {numbers[run_id]}" if run_id in numbers else run_id


def _questions(simulation: Simulation, runs: dict[str, Run]) -> dict[str, int]:
    """The number of the question that each run answers."""
    found = {run.id: number for number, run in simulation.people.acknowledged.items()}
    for run in runs.values():
        key = run.new.idempotency_key
        if key.startswith("ask-"):
            found[run.id] = int(key.removeprefix("ask-"))
        elif key.startswith("instance/ask-"):
            found[run.id] = int(key.removeprefix("instance/ask-"))
        elif key.startswith("telegram:u"):
            found[run.id] = int(key.removeprefix("telegram:u"))
    return found


# ── one log ──────────────────────────────────────────────────────────────────────────────────────────────────


def _log_rules(run: Run, log: Sequence[Entry]) -> Iterator[str]:
    if [entry.seq for entry in log] != list(range(1, len(log) + 1)):
        yield f"the numbers have a gap or come twice: {[entry.seq for entry in log]}"
    ends = [entry for entry in log if isinstance(entry.event, RunFinished)]
    if run.finished is None:
        if ends:
            yield "it has a last entry and has not ended"
        return
    if len(ends) != 1 or not isinstance(log[-1].event, RunFinished):
        yield f"{len(ends)} entries end it"
        return
    if run.state != ends[0].event.status:  # type: ignore[union-attr]
        yield f"its state is {run.state} and its log says {ends[0].event}"
    state = fold(log)
    if run.new.kind != DELIVERY and state.output != run.finished.output:
        yield f"the log adds up to {state.output!r} and the output is {run.finished.output!r}"
    finals = sum(isinstance(entry.event, MessageStop) and entry.event.final for entry in log)
    if run.new.kind == "agent" and finals != 1 and run.finished.status != "failed":
        yield f"{finals} final message stops"


# ── how it ended ─────────────────────────────────────────────────────────────────────────────────────────────


def _may_break(said: Said) -> bool:
    harmful = [fault for fault in said.faults if fault.kind not in HARMLESS]
    special = any(fault.kind in ("length", "empty") for fault in harmful)
    return special or len(harmful) >= MAX_ATTEMPTS


def _allowed_ends(simulation: Simulation, number: int, ask: Ask) -> set[str]:
    world = simulation.world
    allowed = {"completed"}
    if any(_may_break(said) for said in ask.said):
        allowed |= {"incomplete", "failed"}
    if any(fault.kind in PERMANENT for said in ask.said for fault in said.faults):
        allowed |= {"incomplete", "failed"}
    if world.max_turns <= len(ask.said) or world.max_tokens:
        allowed.add("incomplete")
    if world.key_tokens or ask.budget:
        allowed |= {"incomplete", "failed"}
    if number in simulation.people.stopped or any(
        isinstance(one, Stop) and one.ask + 1 == number for one in world.happenings
    ):
        allowed.add("stopped")
    same = [other for other in world.asks if other.session == ask.session and other.surface == ask.surface]
    if len(same) > 1 and (ask.session or ask.surface == "chat"):
        allowed.add("stopped")  # a later message interrupts it
    if ask.surface == "raw" and any(said.tool for said in ask.said):
        allowed |= {"incomplete", "failed"}
    return allowed


def _end_rules(simulation: Simulation, number: int, ask: Ask, run: Run) -> Iterator[str]:
    if run.finished is None:
        deaths = sum(isinstance(one, Kill | Hang) for one in simulation.world.happenings)
        if not (run.state == "parked" and deaths >= DEATHS_BEFORE_PARKED):
            yield f"it is {run.state}"
        return
    status, output = run.finished.status, run.finished.output
    if status not in _allowed_ends(simulation, number, ask):
        error = run.finished.error
        yield f"it ended as {status} ({error.message if error is not None else ''})"
    texts = [answer_text(number, step, said) for step, said in enumerate(ask.said)]
    steers = [one for one in simulation.world.happenings if isinstance(one, Steer) and one.ask + 1 == number]
    extra = [answer_text(number, len(texts) + more, Said(words=3)) for more in range(len(steers))]
    if ask.surface == "sequence":
        yield from _sequence_rules(simulation, number, run.finished, texts)
        return
    if ask.surface == "raw":
        texts = texts[:1]
    shortened = any(fault.kind in ("length", "empty") for said in ask.said for fault in said.faults)
    if status == "completed" and not shortened:
        if output not in (texts[-1], *extra):
            yield f"the answer is {output!r} and should be {texts[-1]!r}"
    elif not any(text.startswith(without_warning(output)) for text in (*texts, *extra)):
        yield f"the answer is {output!r}, which the model has not said"


def _sequence_rules(simulation: Simulation, number: int, end: RunFinished, texts: list[str]) -> Iterator[str]:
    outputs = msgspec.json.decode(end.output)
    ask = simulation.world.asks[number - 1]
    name_of = "b[{}].s" if ask.shape in ("loop", "for_each") else "s{}"
    said = {name_of.format(step): text for step, text in enumerate(texts)}
    shortened = any(fault.kind in ("length", "empty") for one in ask.said for fault in one.faults)
    if end.status == "completed" and outputs.keys() != said.keys():
        yield f"it is completed with the steps {sorted(outputs)}"
    for name, output in outputs.items():
        if not shortened and output["message"]["content"] != said.get(name):
            yield f"the output of {name} is {output!r} and should be {said.get(name)!r}"
    steps = [one.place.step for one in simulation.provider.served if one.place.question == number]
    on_record = not any(
        isinstance(one, Hang | StoreFault) for one in simulation.world.happenings
    )  # when the next begins
    if on_record and ask.shape not in ("parallel", "for_each") and steps != sorted(steps):
        yield f"a step was asked for again after a later one: {steps}"
    if _is_calm(simulation) and not any(one.faults for one in ask.said) and len(set(steps)) < len(steps):
        yield f"a step that went well was asked for again: {steps}"


# ── budgets ──────────────────────────────────────────────────────────────────────────────────────────────────


def _budget_rules(simulation: Simulation, number: int, run: Run, log: Sequence[Entry]) -> Iterator[str]:
    world = simulation.world
    recorded = Usage()
    answers = 0
    for entry in log:
        match entry.event:
            case UsageRecorded(usage=usage):
                recorded += usage
            case MessageRecorded(message=message, stop=stop) if message.role == "assistant" and stop != "limit":
                answers += 1
                if world.max_tokens and answers > 1 and _spent_before(log, entry) >= world.max_tokens:
                    yield "the model was asked after the budget of tokens was used up"
            case _:
                pass
    if run.new.kind == "agent" and answers > world.max_turns:
        yield f"{answers} model calls, of {world.max_turns}"
    if run.finished is not None and run.finished.usage != recorded:
        yield f"the usage is {run.finished.usage} and its log says {recorded}"
    if run.finished is not None:
        yield from _uncounted_attempts(log)
    if _is_calm(simulation) and run.finished is not None and run.finished.status == "completed":
        whole = [one for one in simulation.provider.served if one.place.question == number]
        due = sum((one.usage for one in whole if one.fault.kind in ("ok", "whole")), Usage())
        if recorded.output_tokens < due.output_tokens or recorded.input_tokens < due.input_tokens:
            yield f"the provider has counted {due} and the log {recorded}"


def _uncounted_attempts(log: Sequence[Entry]) -> Iterator[str]:
    """An attempt that has said something is paid for once, whichever process it ended with."""
    begun: dict[str, tuple[int, str, str]] = {}  # by block
    spoke: set[tuple[str, tuple[int, str, str]]] = set()
    counted: Counter[tuple[int, str, str]] = Counter()
    for entry in log:
        event: AnyEvent = entry.event
        if isinstance(event, AttemptStarted):
            begun[event.block_id] = (entry.attempt, event.provider, event.model)
        elif isinstance(event, LlmDelta) and _is_of(begun.get(event.block_id), entry.attempt):
            spoke.add((event.block_id, begun[event.block_id]))
        elif isinstance(event, MessageChunk) and _is_of(begun.get(""), entry.attempt) and without_warning(event.text):
            spoke.add(("", begun[""]))
        elif isinstance(event, UsageRecorded):
            counted[entry.attempt, event.provider, event.model] += 1
    owed = Counter(attempt for _, attempt in spoke)
    for attempt, times in owed.items():
        if counted[attempt] < times:
            yield f"attempt {attempt} has said something and is not counted"
    blocks = max(1, len(begun))
    for attempt, times in counted.items():
        if times > blocks:
            yield f"attempt {attempt} is counted {times} times"


def _is_of(begun: tuple[int, str, str] | None, attempt: int) -> bool:
    return begun is not None and begun[0] == attempt


def _spent_before(log: Sequence[Entry], answer: Entry) -> int:
    """The tokens that were on record when the answer before this one was."""
    spent, before = 0, 0
    for entry in log:
        if entry.seq >= answer.seq:
            return before
        event: AnyEvent = entry.event
        if isinstance(event, UsageRecorded):
            spent += event.usage.input_tokens + event.usage.output_tokens
        elif isinstance(event, MessageRecorded) and event.message.role == "assistant":
            before = spent
    return before


def _is_calm(simulation: Simulation) -> bool:
    """Whether no process died, hung or lost its store."""
    return not any(isinstance(one, Kill | Hang | Leave | StoreFault | Stop) for one in simulation.world.happenings)


def _spent_rules(simulation: Simulation) -> Iterator[str]:
    """No model call begins for a key, or for a sequence, that has used its budget up. What was used is what whole
    answers to earlier steps of the same question have cost: those calls are over."""
    world, cost, asked = simulation.world, Counter[tuple[int, int]](), set[tuple[int, int]]()
    if not _is_calm(simulation):
        return
    for one in simulation.provider.served:
        place = (one.place.question, one.place.step)
        if not 0 < place[0] <= len(world.asks):
            continue
        ask = world.asks[place[0] - 1]
        if place not in asked and ask.shape not in ("parallel", "for_each"):
            used = sum(tokens for (number, step), tokens in cost.items() if number == place[0] and step < place[1])
            for budget in (world.key_tokens, ask.budget):
                if budget and used >= budget:
                    yield f"question {place[0]}: step {place[1]} was asked for after {used} tokens, of {budget}"
        asked.add(place)
        if one.fault.kind in ("ok", "whole"):
            cost[place] += one.usage.input_tokens + one.usage.output_tokens


# ── what was acknowledged ────────────────────────────────────────────────────────────────────────────────────


def _acknowledged(simulation: Simulation, runs: dict[str, Run], numbers: dict[str, int]) -> Iterator[str]:
    people = simulation.people
    for number, run in people.acknowledged.items():
        if run.id not in runs:
            if _may_be_lost(simulation, number):
                continue
            yield f"question {number} was acknowledged and is lost"
        elif msgspec.json.encode(runs[run.id].new) != msgspec.json.encode(run.new):
            yield f"question {number} is stored otherwise than it was asked"
    answered = Counter(numbers[run_id] for run_id, run in runs.items() if run_id in numbers and run.new.kind == "agent")
    for number, times in answered.items():
        if times > 1:
            yield f"question {number} was answered by {times} runs"
    for update_id in simulation.chat.acknowledged:
        if update_id.startswith("u") and int(update_id[1:]) not in answered:
            yield f"the message {update_id} was acknowledged and is lost"
    for number, acknowledged in people.stopped.items():
        run_of_it = people.acknowledged.get(number)
        if acknowledged and run_of_it is not None and runs[run_of_it.id].finished is None:
            yield f"question {number} was stopped and goes on"


def _steer_rules(simulation: Simulation, runs: Mapping[str, Run], logs: Mapping[str, Sequence[Entry]]) -> Iterator[str]:
    """Each message that was accepted has one fate, and a request has it at most once (N164, N165)."""
    for run_id, log in logs.items():
        fates = Counter(_steer_facts(log))
        for (name, steer_id), times in fates.items():
            if times > 1:
                yield f"the message {steer_id} for {run_id} is {name} {times} times"
        accepted = {steer_id for name, steer_id in fates if name == "SteerAccepted"}
        ended = Counter(steer_id for name, steer_id in fates if name != "SteerAccepted")
        if ended.keys() - accepted or any(times > 1 for times in ended.values()):
            yield f"of the messages {accepted} for {run_id} these have ended: {ended}"
        if runs[run_id].finished is not None and accepted - ended.keys():
            yield f"the messages {accepted - ended.keys()} for {run_id} have no fate"
    for number, (run_id, steer_id) in simulation.people.steered.items():
        facts = list(_steer_facts(logs.get(run_id, ())))
        if ("SteerAccepted", steer_id) not in facts:
            yield f"message {number} was accepted and is lost"
        told = any(f"[s{number}]" in marks for marks in simulation.provider.told)
        finished = runs[run_id].finished if run_id in runs else None
        if finished is not None and finished.status == "completed" and told != (("SteerCommitted", steer_id) in facts):
            yield f"message {number} was {'told' if told else 'not told'} to the model, and its log says otherwise"
    for marks in simulation.provider.told:
        if len(marks) > len(set(marks)):
            yield f"a request has a message twice: {marks}"


def _steer_facts(log: Sequence[Entry]) -> Iterator[tuple[str, str]]:
    for entry in log:
        if isinstance(event := entry.event, SteerAccepted | SteerCommitted | SteerReturned):
            yield type(event).__name__, event.steer_id


def _may_be_lost(simulation: Simulation, number: int) -> bool:
    """A run that lived in memory may be gone with its process, and with nothing else."""
    died = any(isinstance(one, Kill) for one in simulation.world.happenings)
    return died and simulation.world.asks[number - 1].in_memory


# ── tools ────────────────────────────────────────────────────────────────────────────────────────────────────


def _tool_rules(
    simulation: Simulation, runs: dict[str, Run], logs: dict[str, list[Entry]], numbers: dict[str, int]
) -> Iterator[str]:
    times: Counter[tuple[str, int, int]] = Counter()
    for ran in simulation.runs_of_tools:
        number, step = int(ran.args.get("question", 0)), int(ran.args.get("step", 0))
        if ran.args != tool_arguments(number, step):
            yield f"{ran.name} ran with {ran.args}"
            continue
        times[ran.name, number, step] += 1
        said = simulation.world.asks[number - 1].said[step]
        if said.tool != ran.name:
            yield f"{ran.name} ran at {number}.{step}, where the model called {said.tool!r}"
        if said.decision in ("deny", "never") and ran.name == "launch":
            yield f"launch {number}.{step} ran although it was not approved"
        of_question = [run_id for run_id, its in numbers.items() if its == number and run_id in runs]
        begun = (
            isinstance(entry.event, ToolCallChunk) and entry.event.args == ran.args
            for run_id in of_question
            for entry in logs[run_id]
        )
        if not any(begun):
            yield f"{ran.name} {number}.{step} ran and is not on record"
    for (name, number, step), count in times.items():
        if count > 1 and name != "look":
            yield f"{name} {number}.{step} ran {count} times"
    for run_id, log in logs.items():
        outputs = Counter(entry.event.call_id for entry in log if isinstance(entry.event, ToolOutputRecorded))
        for call_id, count in outputs.items():
            if count > 1:
                yield f"{_name(numbers, run_id)}: {count} results of the call {call_id}"


# ── viewers ──────────────────────────────────────────────────────────────────────────────────────────────────


def _viewer_rules(simulation: Simulation, logs: dict[str, list[Entry]]) -> Iterator[str]:
    for number, viewed in enumerate(simulation.people.viewed):
        log = logs.get(viewed.run_id, [])
        stored = {entry.seq: to_json(entry.event) for entry in log}
        first = viewed.snapshots[0].seq + 1 if viewed.snapshots else 1
        seen = [seq for seq, _ in viewed.lines]
        if seen != list(range(first, first + len(seen))):
            yield f"viewer {number} saw the entries {seen}"
        for seq, line in viewed.lines:
            if stored.get(seq) != line:
                yield f"viewer {number} saw {line!r} as entry {seq}, which is {stored.get(seq)!r}"
        for snapshot in viewed.snapshots:
            if fold(log[: snapshot.seq]).entry().event != snapshot.event:
                yield f"viewer {number} was given a snapshot that its log does not add up to"
        if viewed.ended and log and viewed.lines and viewed.lines[-1][0] != log[-1].seq:
            yield f"viewer {number} was told of the end after entry {viewed.lines[-1][0]} of {log[-1].seq}"


# ── the chat ─────────────────────────────────────────────────────────────────────────────────────────────────


def _chat_rules(simulation: Simulation, runs: dict[str, Run], numbers: dict[str, int]) -> Iterator[str]:
    chat, world = simulation.chat, simulation.world
    texts = [(message, message.text.split()) for message in chat.messages.values()]
    certain = not chat.in_doubt and not any(isinstance(one, Kill | Hang | StoreFault) for one in world.happenings)
    for run_id, run in runs.items():
        number = numbers.get(run_id, 0)
        if not number or world.asks[number - 1].surface != "chat" or run.finished is None:
            continue
        words = without_warning(run.finished.output).split()
        final = [text for message, text in texts if message.final]
        for word in words:
            times = sum(text.count(word) for text in final)
            if times > 1:
                yield f"question {number}: {word} stands {times} times in final messages"
                break
            shown = sum(text.count(word) for _, text in texts)
            if certain and run.finished.status == "completed" and "gone" not in world.chat_faults and shown != 1:
                yield f"question {number}: {word} is shown {shown} times"
                break
    if certain:
        for message in chat.messages.values():
            if "▌" in message.text:
                yield f"the cursor is left in {message.text!r}"


# ── what is left behind ──────────────────────────────────────────────────────────────────────────────────────


def _leftovers(simulation: Simulation) -> Iterator[str]:
    for node in simulation.nodes:
        for process in node.processes:
            if process.left_behind:
                yield f"{process.name} has ended and left the tasks {process.left_behind}"
    ended = {id(process) for node in simulation.nodes for process in node.processes if process.left_behind is not None}
    if any(id(reply.process) in ended for reply in simulation.provider.open):
        yield "a process has ended and left a connection open"
    if held := [run.id for run in simulation.store.runs() if run.finished is None and run.state == "running"]:
        yield f"{len(held)} leases are left"
    if left := simulation.store.left_open(ended):
        yield f"{left} are left open"
