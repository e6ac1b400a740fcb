"""`llm_call` over real sockets: one output whether it streams or not, and what a viewer sees when things go wrong."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flows.stages import DIALECTS, FAST_RETRY, ask, sequence, spoken, stage, types
from tailrace.config.sections import CallPolicy
from tailrace.events import LlmDelta, UsageRecorded
from tailrace.flows.definition.definition import Budget, DefinitionError
from tailrace.flows.engine.budget import check_budget
from tailrace.flows.steps.base import StepError
from tailrace.messages import Dialect, Usage
from tailrace.providers.prices import ListPrices, cost_usd
from tailrace.testing.clock import driven
from tailrace.testing.provider import REPLIES, Reply, reply

TOOLS = [{"name": "get_weather", "parameters": {"type": "object"}}, {"name": "get_time", "parameters": {}}]
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["city", "people"],
    "additionalProperties": False,
}
GOOD = '{"city": "Zürich", "people": 447082}'


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_stored_output_is_the_same_streamed_and_not_for_every_reply(dialect: Dialect, tmp_path: Path) -> None:
    async with stage(tmp_path) as st:
        for name in (name for name in REPLIES if name != "empty"):
            outputs = []
            for stream in (False, True):
                st.server.extend(name)
                instance, events = await st.watched(ask(provider=dialect, model=name, stream=stream, tools=TOOLS))
                assert instance.state == "completed", instance.error
                outputs.append(instance.outputs["say"])
                content = instance.outputs["say"]["message"]["content"]
                assert spoken(events) == (content if stream else ""), name
            assert outputs[0] == outputs[1], name
            assert outputs[0]["usage"]["input_tokens"] > 0, name


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_output_has_the_fields_of_the_contract(dialect: Dialect, tmp_path: Path) -> None:
    async with stage(tmp_path, "text-and-tools") as st:
        instance = await st.run(ask(provider=dialect, model="m", tools=TOOLS))
        output = instance.outputs["say"]
        assert output.keys() == {"provider", "model", "message", "finish_reason", "usage"}
        assert output["provider"] == dialect
        assert output["message"]["role"] == "assistant"
        assert output["message"]["content"] == "Let me look that up."
        call = output["message"]["tool_calls"][0]
        assert (call["name"], json.loads(call["arguments"])) == ("get_weather", {"city": "Zürich", "unit": "celsius"})
        assert instance.usage.output_tokens == output["usage"]["output_tokens"]


async def test_a_provider_that_refuses_to_stream_gives_the_same_and_is_said_in_one(tmp_path: Path) -> None:
    async with stage(tmp_path, "ok", "ok+no-streaming", "ok+no-streaming", "ok+json") as st:
        plain = await st.run(ask(stream=False))
        refused, events = await st.watched(ask(stream=True))
        whole, _ = await st.watched(ask(stream=True))
        assert plain.outputs == refused.outputs == whole.outputs
        assert spoken(events) == plain.outputs["say"]["message"]["content"]


# ── failures and retries ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("broken", ["cut@60%", "end@60%", "reset@60%", "error-overloaded"])
async def test_E63_a_retry_after_visible_text_discards_it_and_begins_anew(
    dialect: Dialect, broken: str, tmp_path: Path
) -> None:
    """D48, D50, D51: a drop in mid-stream, a missing terminal event and an overload are retryable."""
    async with stage(tmp_path, f"ok+{broken}", "ok") as st:
        instance, events = await st.watched(ask(provider=dialect, stream=True, retry=FAST_RETRY))
        assert instance.state == "completed", instance.error
        content = instance.outputs["say"]["message"]["content"]
        assert content == REPLIES["ok"].reply.text
        assert spoken(events) == content
        discarded = [event for event in events if event.type == "attempt_discarded"]
        assert [event.data["attempt"] for event in discarded] == [1]
        after = [event for event in events if event.seq > discarded[0].seq and event.type == "llm_delta"]
        assert {event.data["attempt"] for event in after} == {2}
        assert len(st.server.requests) == 2


async def test_the_call_retries_by_itself_where_the_step_says_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path, "ok+cut@60%", "status-503", "ok") as st:
        instance, events = await st.watched(ask(stream=True))
        assert instance.state == "completed"
        assert spoken(events) == instance.outputs["say"]["message"]["content"]
        assert len(st.server.requests) == 3


@pytest.mark.parametrize(
    ("scenario", "kind", "code"),
    [
        ("status-400", "permanent", None),
        ("status-401", "permanent", None),
        ("status-404", "permanent", None),
        ("status-422", "permanent", None),
        ("status-429", "retryable", None),
        ("status-500", "retryable", None),
        ("status-529", "retryable", None),
        ("drop", "retryable", None),
        ("ok+cut@50%", "retryable", "stream_cut"),
        ("ok+error-invalid", "permanent", None),
    ],
)
async def test_D53_failures_are_named_for_what_can_be_done(
    scenario: str, kind: str, code: str | None, tmp_path: Path
) -> None:
    async with stage(tmp_path, *[scenario] * 2) as st:
        instance = await st.run(ask(stream=True, retry={**FAST_RETRY, "max_attempts": 2}))
        assert instance.state == "failed"
        assert instance.error is not None
        assert instance.error.kind == kind
        assert instance.error.message.startswith("say: ")
        assert code in (None, instance.error.code)
        assert len(st.server.requests) == (2 if kind == "retryable" else 1)


@driven
async def test_E59_silence_in_mid_stream_is_given_up_after_thirty_seconds(tmp_path: Path) -> None:
    async with stage(tmp_path, "ok+stall@50%", "ok") as st:
        began = now()
        instance, events = await st.watched(ask(stream=True, retry=FAST_RETRY))
        assert instance.state == "completed"
        assert spoken(events) == instance.outputs["say"]["message"]["content"]
        assert 30.0 <= now() - began < 90.0


@driven
async def test_the_steps_own_idle_timeout_wins(tmp_path: Path) -> None:
    async with stage(tmp_path, "ok+stall@50%", policy=CallPolicy(idle_timeout_s=99.0)) as st:
        began = now()
        instance = await st.run(ask(stream_idle_timeout_secs=4, retry={"max_attempts": 1}))
        assert instance.error is not None
        assert (instance.error.kind, instance.error.code) == ("retryable", "idle")
        assert 4.0 <= now() - began < 90.0


@pytest.mark.parametrize(
    ("fault", "params", "code", "seconds"),
    [
        ("ok+stall@0", {"stream_idle_timeout_secs": 4}, "idle", 4.0),
        ("silence", {"first_token_timeout_secs": 9}, "first_token", 9.0),
        ("ok+stall@0", {"first_token_timeout_secs": 9}, "first_token", 9.0),
        ("ok+stall@0", {"first_token_timeout_secs": 9, "stream_idle_timeout_secs": 4}, "idle", 4.0),
    ],
)
@driven
async def test_E61_the_steps_own_time_outs_before_the_first_piece(
    fault: str, params: dict[str, Any], code: str, seconds: float, tmp_path: Path
) -> None:
    async with stage(tmp_path, fault) as st:
        began = now()
        instance = await st.run(ask(**params, retry={"max_attempts": 1}))
        assert instance.error is not None
        assert (instance.error.kind, instance.error.code) == ("retryable", code)
        assert seconds <= now() - began < 90.0


def now() -> float:
    return asyncio.get_running_loop().time()


# ── failover ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_E64_failover_streams_each_provider_and_lists_whom_it_tried(tmp_path: Path) -> None:
    async with stage(tmp_path, "ok+cut@60%", "status-503", "ok") as st:
        providers = [{"provider": name, "model": "m"} for name in ("first", "second", "anthropic")]
        instance, events = await st.watched(ask(providers=providers, stream=True, retry=FAST_RETRY))
        output = instance.outputs["say"]
        assert output["tried"] == ["first", "second", "anthropic"]
        assert output["provider"] == "anthropic"
        assert spoken(events) == output["message"]["content"]
        assert types(events).count("attempt_discarded") == 1
        assert types(events)[-3:] == ["output", "state", "done"]


async def test_all_providers_failed_is_retryable_if_any_of_them_was(tmp_path: Path) -> None:
    providers = [{"provider": name, "model": "m"} for name in ("first", "second")]
    async with stage(tmp_path, "status-401", "status-503", "status-401", "status-400") as st:
        one = await st.run(ask(providers=providers, retry={"max_attempts": 1}))
        none = await st.run(ask(providers=providers, retry={"max_attempts": 1}))
        assert one.error is not None
        assert one.error.kind == "retryable"
        assert "tried first, second" in one.error.message
        assert none.error is not None
        assert none.error.kind == "permanent"


@driven
async def test_each_provider_and_the_whole_call_have_time_outs_of_their_own(tmp_path: Path) -> None:
    providers = [{"provider": name, "model": "m"} for name in ("first", "second")]
    limits: dict[str, Any] = {"providers": providers, "per_provider_timeout_secs": 5, "retry": {"max_attempts": 1}}
    async with stage(tmp_path, "silence", "ok", "silence", "silence") as st:
        over = await st.run(ask(**limits))
        assert over.outputs["say"]["tried"] == ["first", "second"]
        began = now()
        out = await st.run(ask(**limits, total_timeout_secs=7))
        assert out.error is not None
        assert out.error.kind == "retryable"
        assert 7.0 <= now() - began < 10.0  # and not twice five


async def test_an_unknown_provider_is_a_mistake_that_names_it(tmp_path: Path) -> None:
    async with stage(tmp_path) as st:
        instance = await st.run(ask(provider="nobody", retry=FAST_RETRY))
        assert instance.error is not None
        assert (instance.error.kind, instance.error.code) == ("permanent", "config")


# ── schemas ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_satisfies_its_schema_is_parsed(dialect: Dialect, stream: bool, tmp_path: Path) -> None:
    async with stage(tmp_path, reply(GOOD)) as st:
        instance, events = await st.watched(ask(provider=dialect, stream=stream, response_schema=CITY))
        output = instance.outputs["say"]
        assert (output["schema_valid"], output["repair_attempts"]) == (True, 0)
        assert output["parsed"] == json.loads(GOOD)
        assert output["message"]["content"] == GOOD
        assert spoken(events) == (GOOD if stream else "")
        assert b"json_schema" in st.server.requests[0].body


BAD: dict[str, str | Reply] = {
    "a wrong type": reply('{"city": 5, "people": 1}'),
    "a wrong name": reply('{"town": "Zürich", "people": 1}'),
    "something missing": reply('{"city": "Zürich"}'),
    "no JSON": reply("I would rather not."),
    "broken JSON": reply('{"city": "Zürich", people: 1}'),
}


@pytest.mark.parametrize("dialect", ["chat", "anthropic"])
@pytest.mark.parametrize("name", BAD)
async def test_an_invalid_answer_is_discarded_and_repaired_alike_streamed_and_not(
    dialect: Dialect, name: str, tmp_path: Path
) -> None:
    async with stage(tmp_path, BAD[name], reply(GOOD), BAD[name], reply(GOOD)) as st:
        plain = await st.run(ask(provider=dialect, stream=False, response_schema=CITY))
        streamed, events = await st.watched(ask(provider=dialect, stream=True, response_schema=CITY))
        assert plain.outputs == streamed.outputs
        assert streamed.outputs["say"]["repair_attempts"] == 1
        assert spoken(events) == GOOD
        assert len(st.server.requests) == 4
        assert b"That does not satisfy the JSON schema" in st.server.requests[3].body


async def test_a_stream_that_can_no_longer_be_valid_is_stopped_at_once(tmp_path: Path) -> None:
    """The bad name comes first: the provider, slow as it is, is not waited for."""
    long = '{"town": "' + "x" * 3000 + '"}'
    async with stage(tmp_path, reply(long), reply(GOOD)) as st:
        _, events = await st.watched(ask(stream=True, response_schema=CITY))
        first = "".join(e.data["delta"] for e in events if e.type == "llm_delta" and e.data["attempt"] == 1)
        assert '"town"' in first
        assert len(first) < len(long)
        reasons = [e.data["reason"] for e in events if e.type == "attempt_discarded"]
        assert reasons == ["the answer does not satisfy the schema: /: 'town' is not allowed"]


async def test_repairs_have_an_end(tmp_path: Path) -> None:
    bad = reply('{"city": 5}')
    async with stage(tmp_path, bad, bad) as st:
        instance, events = await st.watched(ask(stream=True, response_schema=CITY, max_repair_attempts=1))
        assert instance.error is not None
        assert (instance.error.kind, instance.error.code) == ("permanent", "schema")
        assert len(st.server.requests) == 2
        assert spoken(events) == ""


async def test_a_provider_without_structured_output_is_asked_in_words(tmp_path: Path) -> None:
    async with stage(tmp_path, reply(GOOD)) as st:
        schema = {**CITY, "description": "A city and its people.", "$defs": {"unused": {"$ref": "#"}}}
        instance = await st.run(ask(provider="wordy", response_schema=schema, system="Be brief."))
        assert instance.outputs["say"]["parsed"] == json.loads(GOOD)
        (request,) = st.server.requests
        system = request.json()["messages"][0]["content"]
        assert system.startswith("Be brief.")
        assert json.loads(system[system.index("{") :]) == schema  # as it was written
        assert "response_format" not in request.json()


async def test_a_refusal_of_the_request_itself_is_not_taken_for_one_of_the_schema(tmp_path: Path) -> None:
    async with stage(tmp_path, "status-400", reply(GOOD)) as st:
        instance = await st.run(ask(response_schema=CITY, retry={"max_attempts": 1}))
        assert instance.state == "failed"
        assert len(st.server.requests) == 1


async def test_a_tool_call_instead_of_an_answer_is_not_held_to_the_schema(tmp_path: Path) -> None:
    async with stage(tmp_path, "tools") as st:
        instance = await st.run(ask(response_schema=CITY, tools=TOOLS))
        assert instance.state == "completed"
        assert "schema_valid" not in instance.outputs["say"]


# ── images, budgets, dry runs ────────────────────────────────────────────────────────────────────────────────

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_images_from_files_and_base64_reach_the_provider(dialect: Dialect, tmp_path: Path) -> None:
    (tmp_path / "wheel.png").write_bytes(PNG)
    data = base64.b64encode(PNG).decode()
    async with stage(tmp_path, "ok+cut@60%", "ok") as st:
        content = [{"type": "text", "text": "What is this?"}, {"type": "image", "file": "wheel.png"}]
        instance = await st.run(
            ask(
                provider=dialect,
                prompt="",
                messages=[{"role": "user", "content": content}],
                images=[{"data": data}],
                retry=FAST_RETRY,
            )
        )
        assert instance.state == "completed", instance.error
        for request in st.server.requests:
            assert request.body.count(data.encode()) == 2


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ({"file": "../secret.png"}, "outside the working directory"),
        ({"file": "link.png"}, "outside the working directory"),
        ({"file": "none.png"}, "cannot be read"),
        ({"file": "big.png"}, "larger than 64 bytes"),
        ({"data": base64.b64encode(PNG * 9).decode()}, "larger than 64 bytes"),
        ({"data": "%%%"}, "not base64"),
        ({"data": "aGk="}, "name its media_type"),
        ({"url": "file:///etc/passwd"}, "https:, http: or data:image/…, not file:"),
        ({"url": "ftp://host/x.png"}, "not ftp:"),
        ({"data": "data:text/html;base64,PGI+"}, "not data:text/html;base64"),
        ({}, "exactly one of"),
    ],
)
async def test_J125_an_image_that_may_not_be_sent_fails_its_step(
    image: dict[str, str], words: str, tmp_path: Path
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret.png").write_bytes(PNG)
    (inside / "big.png").write_bytes(PNG * 9)
    (inside / "link.png").symlink_to(tmp_path / "secret.png")
    async with stage(inside) as st:
        instance = await st.run(ask(images=[image], max_image_bytes=64))
        assert instance.error is not None
        assert words in instance.error.message
        assert st.server.requests == []


async def test_a_spent_budget_asks_no_model_again(tmp_path: Path) -> None:
    async with stage(tmp_path) as st:
        instance = await st.run(ask("a"), ask("b"), budget={"max_tokens": 1})
        assert instance.outputs.keys() == {"a"}
        assert instance.error is not None
        assert instance.error.code == "budget"
        st.server.extend("ok")
        priced = await st.run(ask("a", model="gpt-4o"), ask("b"), budget={"max_cost_usd": 1e-9})
        assert priced.outputs["a"]["cost_usd"] > 0
        assert priced.outputs.keys() == {"a"}
        assert priced.error is not None
        assert priced.error.code == "budget"


@pytest.mark.parametrize(("dialect", "model"), [("chat", "gpt-5"), ("anthropic", "anthropic/claude-sonnet-4-5")])
async def test_a_budget_counts_cached_tokens_as_the_provider_does(dialect: Dialect, model: str) -> None:
    """By the dialect that the log names, whatever the model is called: an address of the definition has no entry in the
    config."""
    usage = Usage(100_000, cache_read_tokens=90_000)
    expected = cost_usd(model, usage, dialect) or 0.0
    assert expected > 0
    for limit, enough in ((expected * 1.01, True), (expected * 0.99, False)):
        spent = {("bedrock", model): usage}
        plan = SimpleNamespace(usage=usage, usage_by_model=spent, dialects={"bedrock": dialect})
        with nullcontext() if enough else pytest.raises(StepError, match="is spent"):
            await check_budget(Budget(max_cost_usd=limit), cast("Any", plan), ListPrices(), ())


def test_cached_tokens_cost_a_tenth_and_are_counted_once() -> None:
    assert cost_usd("gpt-5", Usage(100_000, cache_read_tokens=90_000), "chat") == pytest.approx(
        (10_000 * 1.25 + 90_000 * 0.125) / 1e6
    )


async def test_a_dry_run_calls_nobody_and_still_finds_mistakes(tmp_path: Path) -> None:
    async with stage(tmp_path) as st:
        blocks = [ask("a", stream=True), ask("b", prompt="{{steps.a.output.message.content}}")]
        run = await st.flows.start(sequence(*blocks), dry_run=True)
        await st.flows.finished(run.id)
        instance = await st.flows.instance(run.id)
        assert instance.state == "completed"
        assert instance.dry_run
        assert instance.outputs["b"]["dry_run"] is True
        assert instance.outputs["b"]["finish_reason"] == "dry_run"
        wrong = await st.flows.start(sequence(ask("a", provider="nobody")), dry_run=True)
        await st.flows.finished(wrong.id)
        assert (await st.flows.instance(wrong.id)).state == "failed"
        assert st.server.requests == []


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"promt": "x"}, "unknown parameter"),
        ({"temperature": "hot"}, "params.temperature"),
        ({"response_schema": {"type": "x"}}, "response_schema"),
        ({"provider": "a", "providers": []}, "give provider and model, or providers"),
        ({"base_url": "https://{{input.host}}/v1"}, "host cannot come from a template"),
        ({"base_url": "{{env.HOME}}.evil.example"}, "expected an http"),
        ({"api_key_env": "OPENAI_API_KEY"}, "not listed in flows.env_allow"),
        ({"providers": [{"api_key_env": "SECRET"}]}, "params.providers[0].api_key_env"),
    ],
)
async def test_J115_mistakes_in_parameters_are_found_before_anything_runs(
    params: dict[str, Any], words: str, tmp_path: Path
) -> None:
    async with stage(tmp_path) as st:
        with pytest.raises(DefinitionError) as mistake:
            st.flows.check(sequence(ask(**params)))
        assert words in str(mistake.value)


# ── who watches ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_nobody_watching_writes_one_delta_and_a_late_viewer_gets_it_all(tmp_path: Path) -> None:
    async with stage(tmp_path, "long", "long+cut@50%", "long") as st:
        instance = await st.run(ask(stream=True))
        log = await st.log(instance.id)
        deltas = [event for event in log if isinstance(event, LlmDelta)]
        assert len(deltas) == 1
        assert spoken(await st.watch(instance.id)) == instance.outputs["say"]["message"]["content"]
        broken = await st.run(ask(stream=True))
        names = [type(event).__name__ for event in await st.log(broken.id)]
        assert names.count("LlmDelta") == 1
        assert "AttemptDiscarded" not in names  # nobody saw what was taken back


async def test_every_attempt_is_paid_for_on_record(tmp_path: Path) -> None:
    async with stage(tmp_path, reply('{"city": 5, "people": 1}'), reply(GOOD)) as st:
        instance = await st.run(ask(response_schema=CITY, provider="anthropic"))
        costs = [event for event in await st.log(instance.id) if isinstance(event, UsageRecorded)]
        assert len(costs) == 2
        assert instance.usage.input_tokens == sum(cost.usage.input_tokens for cost in costs)
