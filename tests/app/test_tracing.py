"""Spans by OpenTelemetry's conventions for generative AI, as an exporter gets them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from flows.stages import sequence
from server.http_server import config_for
from tailrace import tool
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import App, open_app
from tailrace.app.telemetry.tracing import provider_name, usage_attributes
from tailrace.events import RunFinished
from tailrace.messages import Message, Text, Usage
from tailrace.ports import Tool
from tailrace.testing.provider import Break, FaultyProvider, Offset, Reply, Scenario, call, reply, say

SECRETS = ("What is the password?", "It is swordfish.", "tell-it-to-the-tool", "the tool said so")
STALLED = Scenario(reply=reply("one two three four five six"), broken=Break("stall", Offset(60, per_cent=True)))


@tool(parallel=True)
async def look(what: str) -> str:
    """Looks something up."""
    return f"{SECRETS[3]}: {what}"


@tool
async def fail(what: str) -> str:
    """Fails at it."""
    raise LookupError(what)


@dataclass
class Traced:
    app: App
    exporter: InMemorySpanExporter
    provider: FaultyProvider

    async def turn(self, text: str = "Go.", **fields: object) -> RunFinished:
        run = await self.submit(text, **fields)
        return await self.app.agents.finished(run)

    async def submit(self, text: str = "Go.", **fields: object) -> str:
        spec = TurnSpec(Message("user", (Text(text),)), **fields)  # type: ignore[arg-type]
        return (await self.app.agents.submit(spec, session="s1")).id

    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans() if span.name == name]


@asynccontextmanager
async def traced(
    home: Path, *script: str | Scenario | Reply, tools: tuple[Tool, ...] = (look, fail)
) -> AsyncGenerator[Traced, None]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with (
        FaultyProvider(script=script) as server,
        open_app(config_for(server, home), directory=home, tools=tools, tracer_provider=provider) as app,
    ):
        yield Traced(app, exporter, server)
    provider.shutdown()


def attributes_of(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def span_id(span: ReadableSpan) -> int:
    assert span.context is not None
    number: int = span.context.span_id
    return number


async def test_a_turn_is_a_span_with_its_calls_and_tools_below_it(tmp_path: Path) -> None:
    asked = reply(say("Let me look."), call("look", {"what": "x"}, id="call_7"))
    async with traced(tmp_path, asked, reply("Found.")) as stage:
        finished = await stage.turn()
    (turn,) = stage.named("invoke_agent tailrace")
    (looked,) = stage.named("execute_tool look")
    calls = stage.named("chat ok")
    assert len(stage.spans()) == 4
    assert turn.parent is None
    assert [span.parent.span_id for span in (looked, *calls) if span.parent] == [span_id(turn)] * 3
    assert (turn.kind, looked.kind, *(span.kind for span in calls)) == (
        *(SpanKind.INTERNAL, SpanKind.INTERNAL),
        *(SpanKind.CLIENT, SpanKind.CLIENT),
    )
    assert attributes_of(looked) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.id": "call_7",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": "Looks something up.",
    }
    seen = attributes_of(turn)
    assert seen.pop("tailrace.run.id")
    assert seen == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "faulty",
        "gen_ai.agent.name": "tailrace",
        "gen_ai.request.model": "ok",
        "gen_ai.conversation.id": "s1",
        "tailrace.run.status": "completed",
        **usage_attributes(finished.usage, "chat"),
    }
    assert all(span.status.status_code is StatusCode.UNSET for span in stage.spans())


async def test_a_call_says_what_was_asked_who_answered_and_what_it_cost(tmp_path: Path) -> None:
    async with traced(tmp_path, reply("Hello.")) as stage:
        await stage.turn()
    (answered,) = stage.named("chat ok")
    seen = attributes_of(answered)
    first_chunk, answer_id = seen.pop("gen_ai.response.time_to_first_chunk"), seen.pop("gen_ai.response.id")
    assert isinstance(first_chunk, float)
    assert 0 < first_chunk < 60
    assert isinstance(answer_id, str)
    assert answer_id
    assert seen.pop("gen_ai.usage.input_tokens")
    assert seen.pop("gen_ai.usage.output_tokens")
    assert {name for name in seen if name.startswith("gen_ai.usage.")} <= {
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.reasoning.output_tokens",
    }
    assert {name: value for name, value in seen.items() if not name.startswith("gen_ai.usage.")} == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "faulty",
        "gen_ai.request.model": "ok",
        "gen_ai.request.stream": True,
        "gen_ai.response.model": "ok",
        "gen_ai.response.finish_reasons": ("stop",),
        "tailrace.attempt": 1,
    }


async def test_each_attempt_is_a_span_with_the_class_of_its_error(tmp_path: Path) -> None:
    async with traced(tmp_path, "status-500", "status-429", reply("Hello.")) as stage:
        await stage.turn()
    attempts = stage.named("chat ok")
    (turn,) = stage.named("invoke_agent tailrace")
    numbers = [attributes_of(span)["tailrace.attempt"] for span in attempts]
    errors = [attributes_of(span).get("error.type") for span in attempts]
    assert numbers == [1, 2, 3]
    assert [attributes_of(span)["gen_ai.provider.name"] for span in attempts] == ["faulty", "faulty", "other"]
    assert errors == ["server_error", "rate_limit_exceeded", None]
    assert [span.status.status_code for span in attempts] == [StatusCode.ERROR, StatusCode.ERROR, StatusCode.UNSET]
    assert turn.status.status_code is StatusCode.UNSET


async def test_a_run_and_a_tool_that_fail_say_so(tmp_path: Path) -> None:
    calls = reply(call("fail", {"what": "x"}), call("read_file", {"path": "nowhere.txt"}))
    async with traced(tmp_path, calls, *["status-401"] * 3) as stage:
        finished = await stage.turn()
    (raised,) = stage.named("execute_tool fail")
    (failed,) = stage.named("execute_tool read_file")
    (turn,) = stage.named("invoke_agent tailrace")
    assert finished.status == "failed"
    assert finished.error is not None
    assert attributes_of(turn)["error.type"] == finished.error.kind
    assert attributes_of(raised)["error.type"] == "LookupError"
    assert attributes_of(failed)["error.type"] == "tool_failed"
    assert all(span.status.status_code is StatusCode.ERROR for span in (turn, raised, failed))


async def test_a_turn_that_is_stopped_ends_its_spans_and_is_no_error(tmp_path: Path) -> None:
    async with traced(tmp_path, STALLED) as stage:
        run = await stage.submit()
        async for batch in stage.app.journal.tail(run):
            if any(type(entry.event).__name__ == "MessageChunk" for entry in batch):
                break
        await stage.app.agents.stop(run)
        await stage.app.agents.finished(run)
    (turn,) = stage.named("invoke_agent tailrace")
    (answered,) = stage.named("chat ok")
    assert attributes_of(turn)["tailrace.run.status"] == "stopped"
    assert turn.status.status_code is answered.status.status_code is StatusCode.UNSET
    assert "error.type" not in attributes_of(answered)


async def test_a_run_of_a_model_that_is_not_there_has_its_span(tmp_path: Path) -> None:
    async with traced(tmp_path) as stage:
        await stage.turn(model="nowhere/x")
    (turn,) = stage.spans()
    assert turn.name == "invoke_agent tailrace"
    assert attributes_of(turn)["error.type"] == "ConfigError"


async def test_J114_no_span_has_anything_that_was_said(tmp_path: Path) -> None:
    asked = reply(say(SECRETS[1]), call("look", {"what": SECRETS[2]}), call("fail", {"what": SECRETS[2]}))
    async with traced(tmp_path, asked, reply(SECRETS[1]), "status-400") as stage:
        await stage.turn(SECRETS[0])
        await stage.turn(SECRETS[0])
    everything = "".join(span.to_json() for span in stage.spans())
    assert "execute_tool look" in everything
    for secret in SECRETS:
        assert secret not in everything


async def test_the_asker_s_span_is_the_parent(tmp_path: Path) -> None:
    async with traced(tmp_path, reply("Hello.")) as stage:
        outer = trace.NonRecordingSpan(
            trace.SpanContext(0xABC, 0xDEF, is_remote=True, trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED))
        )
        with trace.use_span(outer):
            await stage.turn()
    (turn,) = stage.named("invoke_agent tailrace")
    assert turn.parent is not None
    assert (turn.parent.trace_id, turn.parent.span_id) == (0xABC, 0xDEF)


async def test_the_steps_of_a_sequence_have_their_spans(tmp_path: Path) -> None:
    blocks = (
        {
            "type": "step",
            "id": "said",
            "handler": "llm_call",
            "params": {"provider": "faulty", "model": "ok", "messages": [{"role": "user", "content": "Hi."}]},
        },
    )
    async with traced(tmp_path, reply("Hello.")) as stage:
        run = await stage.app.flows.start(sequence(*blocks))
        finished = await stage.app.flows.finished(run.id)
    assert finished.status == "completed", finished.error
    assert [span.name for span in stage.spans()] == ["chat ok"]


def test_the_conventions_count_cached_tokens_among_the_input_s() -> None:
    usage = Usage(input_tokens=10, output_tokens=5, cache_read_tokens=100, cache_write_tokens=20)
    assert usage_attributes(usage, "anthropic")["gen_ai.usage.input_tokens"] == 130
    assert usage_attributes(usage, "chat")["gen_ai.usage.input_tokens"] == 10
    assert provider_name("gemini") == "gcp.gemini"
    assert provider_name("openai") == "openai"


# ── where nobody traces ──────────────────────────────────────────────────────────────────────────────────────

QUIET = """
import asyncio, sys
from pathlib import Path
{before}
from tailrace.app import open_app
from tailrace.config.load import load
import os

async def main():
    home = Path(sys.argv[1])
    async with open_app(load(os.environ, home), directory=home) as app:
        ours = "tailrace.app.telemetry.tracing"
        print(len(app.caller._middleware), "opentelemetry.trace" in sys.modules, ours in sys.modules)

asyncio.run(main())
"""
MISSING = """
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
"""
SET = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
trace.set_tracer_provider(TracerProvider())
"""


@pytest.mark.parametrize(
    ("before", "env", "seen"),
    [
        pytest.param("", {}, "0 False False", id="installed, no provider set"),
        pytest.param(MISSING, {}, "0 False False", id="not installed"),
        pytest.param("import opentelemetry.trace", {}, "0 True False", id="imported by others, no provider set"),
        pytest.param(SET, {}, "1 True True", id="a provider set"),
        pytest.param("", {"OTEL_PYTHON_TRACER_PROVIDER": "sdk_tracer_provider"}, "1 True True", id="by environment"),
    ],
)
async def test_nothing_is_imported_unless_a_provider_is_set(
    tmp_path: Path, before: str, env: dict[str, str], seen: str
) -> None:
    script = textwrap.dedent(QUIET).format(before=before)
    (tmp_path / "config.yaml").write_text("store: {url: 'memory://'}\n", encoding="utf-8")
    child = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", script, str(tmp_path)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.stdout.strip() == seen, child.stderr


async def test_a_provider_that_is_not_there_is_named(tmp_path: Path) -> None:
    script = textwrap.dedent(QUIET).format(before="")
    (tmp_path / "config.yaml").write_text("store: {url: 'memory://'}\n", encoding="utf-8")
    child = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", script, str(tmp_path)],
        env={**os.environ, "OTEL_PYTHON_TRACER_PROVIDER": "nobody_has_this"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ConfigError: OTEL_PYTHON_TRACER_PROVIDER: no tracer provider 'nobody_has_this'" in child.stderr
