"""`tailrace flow` as a process of its own: what goes where, and how it ends. The examples, too."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import msgspec
import pytest

from flows.stages import ask, step
from tailrace.messages import JsonObject
from tailrace.providers.local.weights import SMOLLM2
from tailrace.testing.provider import REPLIES, FaultyProvider, reply

EXAMPLES = Path(__file__).parents[3] / "examples"
MODELS = Path(os.environ.get("TAILRACE_TEST_MODELS") or Path.home() / ".cache" / "tailrace-tests" / "models")
INPUTS = {
    "outline.yaml": ["--input", "topic=water mills"],
    "postcards.yaml": ["--input", 'cities=["Zürich", "Porto"]'],
    "triage.json": ["--input", "text=The yard is under water!"],
}
CLASSED = '{"urgency": "high", "about": "the yard"}'


def configure(home: Path, server: FaultyProvider | None) -> None:
    home.mkdir(exist_ok=True)
    if server is not None:
        (home / "config.yaml").write_text(
            "model: {provider: faulty, name: ok}\n"
            f"providers: {{faulty: {{dialect: chat, base_url: '{server.openai_url}', backoff_s: 0.001}}}}\n"
        )


async def flow(home: Path, *args: str, server: FaultyProvider | None = None) -> asyncio.subprocess.Process:
    configure(home, server)
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tailrace", "flow", *args),
        env={**os.environ, "TAILRACE_HOME": str(home)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def ended(process: asyncio.subprocess.Process) -> tuple[int, str, str]:
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def written(directory: Path, *blocks: JsonObject) -> str:
    path = directory / "flow.json"
    path.write_bytes(msgspec.json.encode({"name": "test", "blocks": list(blocks)}))
    return str(path)


async def test_the_answer_goes_to_stdout_and_a_line_per_step_to_stderr(tmp_path: Path) -> None:
    file = written(
        tmp_path, ask("a", prompt="{{input.n}} {{input.t}}", stream=True), step("b", {"seconds": 0}, "sleep")
    )
    async with FaultyProvider(script=["ok+pace@0.2+cut@60%", "ok"]) as server:  # seen before it is cut
        process = await flow(tmp_path / "home", "run", file, "--input", "n=3", "--input", "t=x=y", server=server)
        code, out, err = await ended(process)
        assert server.requests[0].json()["messages"] == [{"role": "user", "content": "3 x=y"}]
    assert code == 0, err
    assert out.endswith(REPLIES["ok"].reply.text + "\n")
    lines = [line.split(" ")[:2] for line in err.splitlines()]
    assert lines == [["·", "a"], ["↺", "a:"], ["✓", "a"], ["·", "b"], ["…", "waiting"], ["✓", "b"]]


async def test_without_streaming_the_last_output_is_the_answer(tmp_path: Path) -> None:
    async with FaultyProvider() as server:
        code, out, _ = await ended(await flow(tmp_path / "home", "run", written(tmp_path, ask("a")), server=server))
    assert (code, out) == (0, REPLIES["ok"].reply.text + "\n")


async def test_json_prints_the_events_of_the_stream(tmp_path: Path) -> None:
    async with FaultyProvider() as server:
        file = written(tmp_path, ask("a", stream=True))
        code, out, err = await ended(await flow(tmp_path / "home", "run", file, "--json", server=server))
    events = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert [event["seq"] for event in events] == sorted(event["seq"] for event in events)
    assert "".join(e["delta"] for e in events if e["type"] == "llm_delta") == REPLIES["ok"].reply.text
    assert (events[-1]["type"], events[-1]["state"]) == ("done", "completed")


async def test_a_failure_ends_with_1_and_says_why(tmp_path: Path) -> None:
    async with FaultyProvider(script=["status-401"]) as server:
        code, out, err = await ended(await flow(tmp_path / "home", "run", written(tmp_path, ask("a")), server=server))
    assert (code, out) == (1, "")
    assert "✗ a failed" in err
    assert err.splitlines()[-1].startswith("error: a: ")


async def test_an_interrupted_instance_can_be_gone_on_with(tmp_path: Path) -> None:
    file = written(tmp_path, step("first", {"seconds": 0}, "sleep"), ask("a", stream=True))
    async with FaultyProvider(script=["ok+stall@50%"]) as server:
        process = await flow(tmp_path / "home", "run", file, server=server)
        await server.request(0)
        process.send_signal(signal.SIGINT)
        code, _, err = await ended(process)
        assert code == 130, err
        instance = err.strip().rpartition(" ")[2]
        code, out, err = await ended(await flow(tmp_path / "home", "resume", instance, server=server))
    assert code == 0, err
    assert out.endswith(REPLIES["ok"].reply.text + "\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: x\nblocks:\n  - {type: step, id: a, handler: llm_cal}\n", "flow.yaml:3: blocks[0].handler"),
        ("name: x\nblocks:\n  - type: step\n    id: a\n    handler: sleep\n    params: {second: 1}\n", "flow.yaml:6: "),
        ("name: x\nblocks:\n  - {type: stepp, id: a, handler: llm_cal}\n", "did you mean llm_call?\n2 mistakes\n"),
        ("name: [", "not YAML"),
    ],
)
async def test_check_names_the_file_the_line_and_the_mistake(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(text)
    code, out, err = await ended(await flow(tmp_path / "home", "check", str(tmp_path / "flow.yaml")))
    assert (code, out) == (1, "")
    assert words in err
    assert not (tmp_path / "home" / "tailrace.db").exists()


async def test_wrong_use_says_what_is_right(tmp_path: Path) -> None:
    code, _, err = await ended(await flow(tmp_path / "home", "run", written(tmp_path, ask("a")), "--input", "x"))
    assert code == 1
    assert "expected K=V" in err
    assert (await ended(await flow(tmp_path / "home", "check", str(tmp_path / "none.yaml"))))[0] == 1


@pytest.mark.parametrize("name", INPUTS)
async def test_the_examples_are_without_mistakes_and_run(name: str, tmp_path: Path) -> None:
    file = str(EXAMPLES / name)
    code, _, err = await ended(await flow(tmp_path / "home", "check", file))
    assert code == 0, err
    script = [reply(CLASSED)] if name == "triage.json" else []
    async with FaultyProvider(script=script) as server:
        code, out, err = await ended(await flow(tmp_path / "home", "run", file, *INPUTS[name], server=server))
    assert code == 0, err
    assert out.endswith(REPLIES["ok"].reply.text + "\n")


@pytest.mark.skipif(
    not (MODELS / SMOLLM2.file_name).exists(), reason="the embedded model's weights are not on this machine"
)
async def test_an_example_runs_against_the_embedded_model(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="the extra `local` is not installed")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "models").symlink_to(MODELS)
    file = str(EXAMPLES / "triage.json")
    code, out, err = await ended(await flow(tmp_path / "home", "run", file, *INPUTS["triage.json"]))
    assert code == 0, err
    assert "✓ class" in err
    assert '"urgency"' in out
