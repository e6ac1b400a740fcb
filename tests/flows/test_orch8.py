"""Documents in orch8's format: read as orch8 means them, run, and given back in its shape."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from flows.stages import QUICK, FaultyRoutes, sequence, service, step
from tailrace.flows.definition import orch8
from tailrace.flows.definition.definition import DefinitionError, Retry, Step, walk
from tailrace.flows.definition.orch8 import is_orch8, read_definition
from tailrace.flows.definition.validate import mistakes_in
from tailrace.flows.engine.service import FlowService, Instance
from tailrace.flows.steps.base import Handler, Handlers
from tailrace.flows.steps.llm_call import LlmCall
from tailrace.flows.steps.orch8 import Orch8LlmCall, Orch8ToolCall, Values
from tailrace.flows.steps.waits import WaitSignal
from tailrace.messages import JsonObject
from tailrace.providers.call import Caller
from tailrace.providers.transport.http1_transport import open_transport
from tailrace.testing.provider import FaultyProvider, Reply, call, reply

DOCUMENTS = Path(__file__).with_name("orch8")
HANDLERS: Handlers = {"do": Values(), "wait_signal": WaitSignal()}


def document(name: str) -> JsonObject:
    found: JsonObject = json.loads((DOCUMENTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def single(params: JsonObject, **fields: Any) -> JsonObject:
    """A document of one step that asks a model."""
    own = {"provider": "openai", "model": "ok", "messages": [{"role": "user", "content": "Hi"}]}
    return {"tenant_id": "t", "name": "x", "blocks": [step("a", {**own, **params}, "llm_call", **fields)]}


@asynccontextmanager
async def running(
    directory: Path, *script: Reply | str, allow_hosts: tuple[str, ...] = ("127.0.0.1",)
) -> AsyncGenerator[tuple[FlowService, FaultyProvider], None]:
    async with FaultyProvider(script=script) as server, open_transport() as transport:
        routes = FaultyRoutes(server.url, transport, QUICK)
        handlers: dict[str, Handler[Any]] = {
            "llm_call": LlmCall(Caller(), routes),
            orch8.LLM_CALL: Orch8LlmCall(Caller(), routes),
            orch8.TOOL_CALL: Orch8ToolCall(allow_hosts),
            orch8.VALUES: Values(),
        }
        async with service(directory, None, None, **handlers) as flows:
            yield flows, server


async def ended(flows: FlowService, written: JsonObject, data: JsonObject) -> Instance:
    run = await flows.start(read_definition(written), data)
    await flows.finished(run.id)
    return await flows.instance(run.id)


@asynccontextmanager
async def tool_server(*statuses: int) -> AsyncGenerator[tuple[str, list[JsonObject]], None]:
    asked: list[JsonObject] = []
    answers = iter(statuses)

    async def answer(request: web.Request) -> web.Response:
        asked.append(await request.json())
        return web.json_response({"found": asked[-1]["arguments"]}, status=next(answers, 200))

    application = web.Application()
    application.router.add_post("/tools", answer)
    async with TestServer(application) as server:
        yield str(server.make_url("/tools")), asked


async def test_a_loop_of_thinking_and_acting_ends_when_the_model_says_so(tmp_path: Path) -> None:
    act, done = '{"action": "measure", "action_input": {"at": "wheel"}}', '{"action": "finish", "final_answer": "7 m"}'
    async with tool_server() as (url, asked), running(tmp_path, reply(act), reply(done)) as (flows, server):
        given = {"task": "How high?", "tool_url": url}
        instance = await ended(flows, document("agent_loop"), given)
    assert (instance.state, instance.error) == ("completed", None)
    assert [(body["tool_name"], body["arguments"]) for body in asked] == [("measure", {"at": "wheel"})]
    assert asked[0]["context"] == {"instance_id": instance.id, "block_id": "rounds[0].act", "attempt": 1}
    second = server.requests[1].body.decode()
    assert '\\"found\\":{\\"at\\":\\"wheel\\"}' in second
    assert "Seen: null" in server.requests[0].body.decode()
    assert instance.outputs["answer"] == {"key": "answer", "value": "7 m"}


async def test_a_plan_is_executed_step_by_step_with_retries_in_milliseconds(tmp_path: Path) -> None:
    plan = '{"steps": [{"tool": "a", "input": {"n": 1}}, {"tool": "b", "input": {"n": 2}}]}'
    async with tool_server(503) as (url, asked), running(tmp_path, reply(plan), reply("Done.")) as (flows, server):
        instance = await ended(flows, document("plan_and_execute"), {"task": "Plan.", "tool_url": url})
    assert (instance.state, instance.error) == ("completed", None)
    assert [body["tool_name"] for body in asked] == ["a", "a", "b"]
    sent = server.requests[0].json()
    assert (sent["frequency_penalty"], sent["n"], sent["response_format"]) == (0.5, 1, {"type": "json_object"})
    assert "for nobody" in server.requests[1].body.decode()
    output = instance.outputs["plan"]
    assert output["steps"] == [{"tool": "a", "input": {"n": 1}}, {"tool": "b", "input": {"n": 2}}]
    assert set(output["usage"]) == {"prompt_tokens", "completion_tokens", "total_tokens"}
    assert {"input_tokens", "output_tokens"} <= set(instance.outputs["report"]["usage"])  # as that provider says it
    work = next(block for _, block in walk(read_definition(document("plan_and_execute")).blocks) if block.id == "work")
    assert isinstance(work, Step)
    assert (work.timeout_secs, work.retry) == (30.0, Retry(3, 0.002, 0.005))


@pytest.mark.parametrize("severity", ["critical", "low"])
async def test_a_review_waits_for_a_person_and_any_other_answer_is_delivered(tmp_path: Path, severity: str) -> None:
    async with running(tmp_path, reply(f'{{"severity": "{severity}"}}')) as (flows, _):
        run = await flows.start(read_definition(document("guarded")), {"text": "x"})
        if severity == "critical":
            await flows.signal(run.id, "human_input:escalate", {"value": "yes"})
        await flows.finished(run.id)
        instance = await flows.instance(run.id)
    if severity == "critical":
        assert instance.outputs["escalate"]["payload"] == {"value": "yes"}
    else:
        assert instance.outputs["deliver"] == {"status": "approved", "severity": "low"}


async def test_a_bar_in_quotes_or_twice_is_no_fallback(tmp_path: Path) -> None:
    shown = step("a", {"said": "{{ context.data.none | 'x|y' }}", "any": "{{ context.data.yes || false }}"}, "noop")
    async with running(tmp_path) as (flows, _):
        written = {"namespace": "n", "name": "x", "blocks": [shown]}
        outputs = (await ended(flows, written, {"yes": True})).outputs
    assert outputs["a"] == {"said": "x|y", "any": True}


async def test_the_output_has_the_shape_of_chat_completions(tmp_path: Path) -> None:
    async with running(tmp_path, reply("Let me see.", call("look", {"at": 1}, "c1"))) as (flows, _):
        output = (
            await ended(flows, single({"tools": [{"type": "function", "function": {"name": "look"}}]}), {})
        ).outputs
    made = output["a"]["message"]["tool_calls"]
    assert made == [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at":1}'}}]
    assert (output["a"]["provider"], output["a"]["message"]["content"]) == ("openai", "Let me see.")


async def test_J116_data_cannot_lead_a_tool_call_behind_the_firewall(tmp_path: Path) -> None:
    async with tool_server() as (url, asked), running(tmp_path, allow_hosts=()) as (flows, _):
        written = {"tenant_id": "t", "name": "x", "blocks": [step("a", {"url": "{{context.data.url}}"}, "tool_call")]}
        instance = await ended(flows, written, {"url": url})
    assert instance.error is not None
    assert "is not on the public Internet" in instance.error.message
    assert "flows.allow_hosts" in instance.error.message
    assert asked == []


@pytest.mark.parametrize(
    ("written", "path", "words"),
    [
        (single({"api_key": "sk-live-1"}), "$.blocks[0]", "a key cannot stand in a document"),
        (single({}, send_window={"start_hour": 9}), "$.blocks[0].send_window", "not supported"),
        (single({}, retry={"max_attempts": 2, "retry_if": "x"}), "$.blocks[0]", "retry.retry_if of orch8"),
        (single({"system": "{{context.data.x | upper}}"}), "$.blocks[0]", "the filter upper of orch8"),
        (single({"system": "{{len(outputs.b)}}"}), "$.blocks[0]", "the function len of orch8"),
        (single({"system": "{{context.config.x}}"}), "$.blocks[0]", "context.config.x of orch8"),
        ({**single({}), "on_failure": [step("b")]}, "$.on_failure", "not supported"),
        (
            {"tenant_id": "t", "name": "x", "blocks": [{"type": "race", "id": "r", "branches": [[step("b")]]}]},
            "$.blocks[0]",
            "first_to_succeed",
        ),
        (
            {
                "tenant_id": "t",
                "name": "x",
                "blocks": [{"type": "sub_sequence", "id": "s", "sequence_name": "{{outputs.a.agent}}_agent"}],
            },
            "$.blocks[0]",
            "a template cannot name a sequence",
        ),
    ],
)
def test_what_has_no_counterpart_is_refused_by_name(written: JsonObject, path: str, words: str) -> None:
    with pytest.raises(DefinitionError) as mistake:
        read_definition(written)
    assert (mistake.value.path, words in str(mistake.value), "sk-live" in str(mistake.value)) == (path, True, False)


@pytest.mark.parametrize(
    "text",
    [
        "{{" * 200_000,
        "{{a" * 150_000,
        "{{" + '\\"' * 200_000 + "}}",
        "{{" + '"\\' * 200_000 + "}}",
        "{{ " + "a " * 200_000,
    ],
)
def test_L140_a_hostile_document_is_read_in_linear_time(text: str) -> None:
    """In quadratic time each of these would take minutes."""
    read_definition(single({"system": text}))


def test_a_key_is_the_name_of_a_variable() -> None:
    (block,) = read_definition(single({"providers": [{"provider": "a", "api_key": "KEY_A"}], "api_key": "KEY"})).blocks
    assert isinstance(block, Step)
    assert block.params["api_key_env"] == "KEY"
    assert block.params["providers"] == [{"provider": "a", "api_key_env": "KEY_A"}]


def test_a_document_of_ours_is_not_taken_for_one() -> None:
    ours = {"name": "x", "blocks": [step("a", {"prompt": "What is context.data.x, and outputs.y?"})]}
    assert not is_orch8(ours)
    assert not is_orch8({"name": "x", "blocks": [step("a", {"path": "outputs.csv"})]})
    assert is_orch8({**ours, "namespace": "default"})
    assert is_orch8({"name": "x", "blocks": [step("a", {"prompt": "{{ outputs.b.content }}"})]})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"retry": {"initial_backoff": 1000}}, "initial_backoff: 1000 is a number of seconds here, 17 minutes"),
        ({"retry": {"initial_backoff": "2h", "max_backoff": "3h"}}, "initial_backoff: 2h is more than an hour"),
        ({"timeout_secs": 100_000}, "timeout_secs: 100000 seconds is more than a day"),
    ],
)
def test_a_time_in_milliseconds_elsewhere_is_refused_with_the_unit(fields: JsonObject, words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        raise next(mistakes_in(sequence(step("a", **fields)), HANDLERS))


def test_a_step_may_wait_for_a_person_longer_than_a_day() -> None:
    waiting = step("a", {"signal": "x"}, "wait_signal", timeout_secs=1e6)
    fine = sequence(waiting, step("b", retry={"initial_backoff": "20m", "max_backoff": "1h"}))
    assert list(mistakes_in(fine, HANDLERS)) == []
