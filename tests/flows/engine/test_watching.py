"""Viewers of an instance: late ones, those of another process, those of a log that is no longer kept whole."""

from __future__ import annotations

import asyncio
from pathlib import Path

from flows.stages import Doing, ask, sequence, service, spoken, stage, step
from tailrace.events import LlmDelta, SignalReceived
from tailrace.flows.definition.public_ids import run_id_of
from tailrace.flows.engine.instance_events import InstanceEvent
from tailrace.flows.steps.base import StepError
from tailrace.journal.memory import MemoryJournal
from tailrace.messages import JsonObject
from tailrace.testing.clock import driven
from tailrace.testing.provider import Scenario, reply


@driven
async def test_a_viewer_who_comes_in_the_middle_hears_what_was_said_and_then_each_word(tmp_path: Path) -> None:
    async with stage(tmp_path, "ok+pace@1") as st:
        run = await st.flows.start(sequence(ask(stream=True)))
        await asyncio.sleep(8.5)  # of the driven clock: the model says a word a second
        assert not [event for event in await st.log(run.id) if isinstance(event, LlmDelta)]
        events = await st.watch(run.id)
        deltas = [event.data["delta"] for event in events if event.type == "llm_delta"]
        assert len(deltas) > 2
        assert len(deltas[0]) > max(map(len, deltas[1:]))  # what had piled up came as one
        assert spoken(events) == (await st.flows.instance(run.id)).outputs["say"]["message"]["content"]


async def test_when_the_last_viewer_leaves_words_are_kept_back_again(tmp_path: Path) -> None:
    words = Scenario(reply=reply(" ".join(f"word{number}" for number in range(300))), pace_s=0.0001)
    async with stage(tmp_path, words) as st:
        run = await st.flows.start(sequence(ask(stream=True)))
        async for batch in st.flows.watch(run.id):
            if any(event.type == "llm_delta" for event in batch):
                break
        else:
            raise AssertionError("nothing was said")
        await st.flows.finished(run.id)
        deltas = [event for event in await st.log(run.id) if isinstance(event, LlmDelta)]
        content = (await st.flows.instance(run.id)).outputs["say"]["message"]["content"]
        assert "".join(event.delta for event in deltas) == content
        assert len(deltas) < 150  # of 300 words most were unheard


async def test_a_viewer_in_another_process_is_heard_of_by_a_signal(tmp_path: Path) -> None:
    journal = MemoryJournal()
    async with stage(tmp_path, "ok+stall@70%", journal=journal) as st, service(tmp_path, journal) as elsewhere:
        run = await st.flows.start(sequence(ask(stream=True)))
        await st.server.request(0)
        seen: list[InstanceEvent] = []
        async with asyncio.timeout(30):
            async for batch in elsewhere.watch(run.id):
                seen += batch
                if spoken(seen):
                    break
        assert spoken(seen).startswith("The mill wheel")
        await st.flows.signal(run.id, "cancel")
        await st.flows.finished(run.id)
        heard = [event.name for event in await st.log(run.id) if isinstance(event, SignalReceived)]
        assert heard == ["cancel"], "that somebody watches is not part of the log"


async def test_H98_a_compacted_instance_says_what_it_was_in_one_event(tmp_path: Path) -> None:
    async with stage(tmp_path, "ok") as st:
        instance = await st.run(ask(stream=True), step("b", {"n": 1}))
        await st.journal.compact(run_id_of(instance.id))
        assert (await st.flows.instance(instance.id)).outputs == instance.outputs
        first, last = await st.watch(instance.id)
        assert (first.type, last.type) == ("snapshot", "done")
        assert first.data["outputs"] == instance.outputs
        assert first.data["texts"] == {"say": instance.outputs["say"]["message"]["content"]}


async def test_J114_what_came_from_the_environment_is_not_quoted_in_an_error(tmp_path: Path) -> None:
    def fail(params: JsonObject) -> None:
        raise StepError(f"could not find {params['home']}/x")

    async with service(tmp_path, doing=Doing(fail)) as flows:
        run = await flows.start(sequence(step("a", {"home": "{{env.HOME}}"})))
        error = (await flows.finished(run.id)).error
        assert error is not None
        assert error.message == "a: could not find …/x"
