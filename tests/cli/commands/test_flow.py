"""`tailrace flow` as a process of its own: what goes where, and how it ends. The examples, too."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from pathlib import Path

import msgspec
import pytest

from cli.screen.vt import VirtualTerminal
from flows.stages import ask, step
from tailrace.cli.main import main
from tailrace.journal.open_journal import open_journal
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


class Here:
    """The command in this process: the exit code, what it printed, and what it said on stderr."""

    def __init__(self, captured: pytest.CaptureFixture[str]) -> None:
        self._captured = captured

    def __call__(self, *args: str) -> tuple[int, str, str]:
        code = main(["flow", *args])
        out, err = self._captured.readouterr()
        return code, out, err


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    configure(tmp_path / "home", None)
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path / "home"))
    return Here(capsys)


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
    told, _, summary = err.partition("\n\n")
    first, *lines = told.splitlines()
    assert re.fullmatch(r"ins_[0-9a-f]{24} test", first)
    assert [line.split(" ")[:2] for line in lines] == [*(["·", "a"], ["↺", "a:"], ["✓", "a"], ["·", "b"], ["✓", "b"])]
    header, *rows = [line.split() for line in summary.splitlines()]
    assert header == ["step", "state", "tries", "time", "tokens"]
    assert [row[:3] for row in rows[:2]] == [["a", "finished", "1"], ["b", "finished", "1"]]
    # 25 that the provider has counted, and 5 of the same question in the attempt that was cut
    assert (rows[2][:2], rows[2][-1].partition("/")[0]) == (["total", "completed"], "~30")


async def test_a_text_that_looks_like_a_number_is_sent_as_it_was_typed(tmp_path: Path) -> None:
    file = tmp_path / "flow.json"
    schema = {"type": "object", "properties": {"v": {"type": "string"}}}
    blocks = [ask("a", prompt="<{{input.v}}> <{{input.w}}>")]
    file.write_bytes(msgspec.json.encode({"name": "test", "input_schema": schema, "blocks": blocks}))
    async with FaultyProvider() as server:
        process = await flow(tmp_path / "home", "run", str(file), "--input", "v=7", "--input", "w=1.10", server=server)
        code, _, err = await ended(process)
        assert code == 0, err
        assert server.requests[0].json()["messages"] == [{"role": "user", "content": "<7> <1.10>"}]


async def test_without_streaming_the_last_output_is_the_answer(tmp_path: Path) -> None:
    async with FaultyProvider() as server:
        code, out, _ = await ended(await flow(tmp_path / "home", "run", written(tmp_path, ask("a")), server=server))
    assert (code, out) == (0, REPLIES["ok"].reply.text + "\n")


async def test_what_a_sequence_uses_is_counted_for_the_terminal(tmp_path: Path) -> None:
    async with FaultyProvider() as server:
        await ended(await flow(tmp_path / "home", "run", written(tmp_path, ask("a")), server=server))
    async with open_journal("sqlite:///tailrace.db", tmp_path / "home" / "tailrace.db") as journal:
        assert {name.split("\t")[2] for name in await journal.counters("usage\t")} == {"terminal"}


async def test_json_prints_the_events_of_the_stream(tmp_path: Path) -> None:
    async with FaultyProvider() as server:
        file = written(tmp_path, ask("a", stream=True))
        code, out, err = await ended(await flow(tmp_path / "home", "run", file, "--json", server=server))
    events = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert [event["seq"] for event in events] == sorted(event["seq"] for event in events)
    assert "".join(e["delta"] for e in events if e["type"] == "llm_delta") == REPLIES["ok"].reply.text
    assert (events[-1]["type"], events[-1]["state"]) == ("done", "completed")


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
async def test_an_input_that_is_missing_is_asked_for_by_its_option(tmp_path: Path, dry: tuple[str, ...]) -> None:
    step = {"type": "step", "id": "a", "handler": "llm_call", "params": {"prompt": "Greet {{input.name}}."}}
    code, _, err = await ended(await flow(tmp_path / "home", "run", written(tmp_path, step), *dry))
    *_, error, then = err.splitlines()
    assert (code, error) == (1, "error: a: there is no input.name")
    assert then.endswith(" -m tailrace flow run FILE --input name=… gives it"), "as it was started"


async def test_a_failure_ends_with_1_and_says_why(tmp_path: Path) -> None:
    async with FaultyProvider(script=["status-401"]) as server:
        code, out, err = await ended(await flow(tmp_path / "home", "run", written(tmp_path, ask("a")), server=server))
    assert (code, out) == (1, "")
    assert "✗ a failed" in err
    *_, error, then = err.splitlines()
    assert error.startswith("error: a: ")
    instance = err.split()[0]
    assert then.endswith(f" -m tailrace flow retry {instance} goes on from step a")


async def test_steps_side_by_side_are_printed_whole_and_with_their_names(tmp_path: Path) -> None:
    body = [ask("card", stream=True)]
    each: JsonObject = {"type": "for_each", "id": "each", "collection": [1, 2, 3], "body": body}
    async with FaultyProvider(script=["ok+pace@0.01"] * 3) as server:
        code, out, err = await ended(
            await flow(tmp_path / "home", "run", written(tmp_path, each, ask("last")), server=server)
        )
    assert code == 0, err
    said = REPLIES["ok"].reply.text
    parts = out.removeprefix("## ").split("\n\n## ")
    assert sorted(parts) == sorted([*(f"each[{n}].card\n\n{said}" for n in range(3)), f"last\n\n{said}\n"])


async def test_a_failed_instance_goes_on_where_it_failed(tmp_path: Path) -> None:
    file = written(tmp_path, ask("one"), ask("two"))
    async with FaultyProvider(script=["ok", "status-401", "ok"]) as server:
        code, _, err = await ended(await flow(tmp_path / "home", "run", file, server=server))
        assert code == 1
        command = err.splitlines()[-1].partition(" tailrace ")[2].split()[:3]
        assert command[:2] == ["flow", "retry"]
        assert err.endswith(" goes on from step two\n")
        code, out, err = await ended(await flow(tmp_path / "home", *command[1:], server=server))
        assert (code, len(server.requests)) == (0, 3), err
        assert ["one", "kept"] in [line.split()[:2] for line in err.splitlines()]
        code, _, err = await ended(await flow(tmp_path / "home", "retry", "last", server=server))
        assert (code, len(server.requests)) == (1, 3)
        assert "has not failed: it is completed" in err
    assert out.count(REPLIES["ok"].reply.text) == 2


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_missing_input_says_how_it_is_given(here: Here, dry: tuple[str, ...]) -> None:
    code, out, err = here("run", str(EXAMPLES / "outline.yaml"), *dry)
    assert (code, out) == (1, "")
    assert err == f"error: {EXAMPLES / 'outline.yaml'}: needs --input topic=…\n"


async def test_in_a_terminal_each_step_has_a_line_and_an_interrupt_says_how_to_go_on(tmp_path: Path) -> None:
    body = [ask("card", stream=True)]
    each: JsonObject = {"type": "for_each", "id": "each", "collection": [1, 2, 3], "body": body}
    async with FaultyProvider(script=["ok+stall@50%"] * 3) as server:
        configure(tmp_path / "home", server)
        command = [sys.executable, "-m", "tailrace", "flow", "run", written(tmp_path, each)]
        async with VirtualTerminal(
            command, {**os.environ, "TAILRACE_HOME": str(tmp_path / "home")}, columns=60, rows=12
        ) as terminal:
            await terminal.until("· each[2].card")
            terminal.type("\x03")
            assert await terminal.exit_code() == 130
            assert re.search(r"go on with: .*tailrace flow resume ins_", terminal.text.replace("\n", ""))


async def test_an_interrupted_instance_can_be_gone_on_with(tmp_path: Path) -> None:
    file = written(tmp_path, step("first", {"seconds": 0}, "sleep"), ask("a", stream=True))
    async with FaultyProvider(script=["ok+stall@50%"]) as server:
        process = await flow(tmp_path / "home", "run", file, server=server)
        assert process.stderr is not None
        named = (await process.stderr.readline()).decode().split()[0]
        await server.request(0)
        process.send_signal(signal.SIGINT)
        code, _, err = await ended(process)
        assert code == 130, err
        instance = err.strip().rpartition(" ")[2]
        assert instance == named
        code, out, err = await ended(await flow(tmp_path / "home", "resume", server=server))
    assert code == 0, err
    assert err.split()[0] == instance
    assert out.endswith(REPLIES["ok"].reply.text + "\n")
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: x\nblocks:\n  - {type: step, id: a, handler: llm_cal}\n", "flow.yaml:3: blocks[0].handler"),
        ("name: x\nblocks:\n  - type: step\n    id: a\n    handler: sleep\n    params: {second: 1}\n", "flow.yaml:6: "),
        (
            "name: x\nblocks:\n  - {type: step, id: a, handler: llm_cal}\n  - {type: step, id: a, handler: x}\n",
            "\n3 mistakes\n",
        ),
        ("name: [", "not YAML"),
    ],
)
def test_check_names_the_file_the_line_and_the_mistake(text: str, words: str, tmp_path: Path, here: Here) -> None:
    (tmp_path / "flow.yaml").write_text(text)
    code, out, err = here("check", str(tmp_path / "flow.yaml"))
    assert (code, out) == (1, "")
    assert words in err
    assert not (tmp_path / "home" / "tailrace.db").exists()


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(
    ("block", "words"),
    [
        (ask("a", model="nosuch/x"), "params.model: step a: model: no provider is called nosuch; there are "),
        (ask("a", provider="nosuch"), "params.provider: step a: providers.nosuch: no such provider; there are "),
        (ask("a", provider="antropic"), "providers.antropic: no such provider; did you mean anthropic?\n"),
        (ask("a", model="antropic/x"), "no provider is called antropic; did you mean anthropic?\n"),
        (step("a", {"prompt": "x", "model": "opnai/x"}, "agent"), "no such provider; did you mean openai?\n"),
        (
            ask("a", providers=[{"model": "local/x"}]),
            "params.providers[0].model: step a: model: the embedded model is ",
        ),
        (step("a", {"prompt": "x", "model": "nosuch/x"}, "agent"), "params.model: step a: providers.nosuch: no such "),
        (step("a", {"prompt": "x", "model": "tailrace"}, "agent"), "model: 'tailrace' stands for the agent, which is "),
        (step("a", {"prompt": "x", "model": "zzz"}, "agent"), "model: expected <provider>/<model> or one of "),
    ],
)
def test_check_finds_what_every_run_would_fail_by(
    block: JsonObject, words: str, dry_run: bool, tmp_path: Path, here: Here
) -> None:
    file = written(
        tmp_path, block, ask("b", model="openai/gpt-5")
    )  # without its key, which is no mistake of the file's
    code, out, err = here(*(("run", file, "--dry-run") if dry_run else ("check", file)))
    assert (code, out) == (1, "")
    assert words in err
    assert err.count("\n") == 1


def test_wrong_use_says_what_is_right(tmp_path: Path, here: Here) -> None:
    code, _, err = here("run", written(tmp_path, ask("a")), "--input", "x")
    assert code == 1
    assert "expected K=V" in err
    assert here("check", str(tmp_path / "none.yaml"))[0] == 1


@pytest.mark.parametrize("name", INPUTS)
def test_the_examples_are_without_mistakes(name: str, here: Here) -> None:
    code, _, err = here("check", str(EXAMPLES / name))
    assert code == 0, err


@pytest.mark.parametrize("name", INPUTS)
async def test_the_examples_run(name: str, tmp_path: Path) -> None:
    file = str(EXAMPLES / name)
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
