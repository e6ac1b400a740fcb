"""`tailrace init`: the way from nothing to a set-up that works."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.commands.command_line import PROGRAM, environment, tailrace
from cli.screen.vt import VirtualTerminal
from tailrace.cli.own_journal import ask_line, is_agreed
from tailrace.cli.setup.init import Candidate, _answered, _at_address, ollama_url, provider_of_key
from tailrace.config.load import load
from tailrace.testing.provider import FaultyProvider


def test_init_writes_a_config_that_streams(tmp_path: Path) -> None:
    home = tmp_path / "new"
    done = tailrace(home, "init")
    assert (done.returncode, done.stdout) == (0, "")
    assert (
        done.stderr
        == f"wrote {home / 'config.yaml'}: local/smollm2-135m is fetched with the first question\nnext: {PROGRAM}\n"
    )
    config = load({}, home)
    assert config.streams("cli")
    assert (config.model.provider, config.model.name) == ("local", "smollm2-135m")
    assert "#" in (home / "config.yaml").read_text()


def test_init_claims_nothing_of_a_model_that_was_not_asked(tmp_path: Path) -> None:
    done = tailrace(tmp_path, "init", "--provider", "ollama", "--model", "qwen3", "--yes", "--no-test")
    assert done.returncode == 0
    assert "answers" not in done.stderr


def test_init_suggests_whose_key_is_set_and_names_what_is_missing(tmp_path: Path) -> None:
    done = tailrace(tmp_path, "init", ANTHROPIC_API_KEY="sk-set")
    assert done.returncode == 0, "without a terminal nobody is called"
    assert load({}, tmp_path).model.provider == "anthropic"
    done = tailrace(tmp_path, "init", "--provider", "vllm", "--force")
    assert (done.returncode, done.stderr) == (2, "error: which model of vllm? name it as vllm/MODEL, or with --model\n")
    (tmp_path / "config.yaml").unlink()
    done = tailrace(tmp_path, "init", "--provider", "openai", "--model", "some: model")
    assert (done.returncode, done.stderr.splitlines()[1]) == (0, f"next: export OPENAI_API_KEY=…, then {PROGRAM}")
    config = load({}, tmp_path)
    assert (config.model.provider, config.model.name) == ("openai", "some: model")
    assert config.approvals.wait_s(in_chat=True) == 900  # it leaves the defaults as they are
    assert "sk-set" not in (tmp_path / "config.yaml").read_text()


def test_init_replaces_nothing_unless_told_to(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("broken: [")
    done = tailrace(tmp_path, "init")
    assert (done.returncode, "--force" in done.stderr) == (1, True)
    assert (tmp_path / "config.yaml").read_text() == "broken: ["
    written = [(tmp_path / "config.yaml").read_text()]
    for number in (1, 2):  # no copy replaces an earlier one (M156)
        assert tailrace(tmp_path, "init", "--force", "--provider", "openai", "--model", f"m{number}").returncode == 0
        assert (tmp_path / f"config.yaml.bak{number}").read_text() == written[-1]
        written.append((tmp_path / "config.yaml").read_text())
    assert tailrace(tmp_path, "init", "--force", "--provider", "nobody").returncode == 2


async def test_init_finds_ollama_asks_one_question_tries_it_and_writes(tmp_path: Path, server: FaultyProvider) -> None:
    ollama = server.url.removeprefix("http://")
    command = [sys.executable, "-m", "tailrace", "init"]
    async with VirtualTerminal(command, environment(tmp_path, OLLAMA_HOST=ollama, XAI_API_KEY="sk-x")) as terminal:
        await terminal.until("A number, k, a, or provider/model [1]:")
        shown = terminal.text
        assert "1  xai/grok-4" in shown
        assert "XAI_API_KEY is set" in shown
        assert "3  local/smollm2-135m" in shown
        terminal.enter("7")
        await terminal.until("that number is not in the list: from 1 to 3")
        terminal.enter("nobody/x")
        await terminal.until("no provider 'nobody'")
        terminal.enter("2")
        await terminal.until("it answers")
        assert await terminal.exit_code() == 0
    config = load({}, tmp_path)
    assert config.model.provider == "ollama"
    assert config.providers["ollama"].base_url == f"{server.url}/v1"
    assert [request.path for request in server.requests if "completions" in request.path] == ["/v1/chat/completions"]


async def test_init_writes_nothing_where_the_model_does_not_answer(tmp_path: Path) -> None:
    async with FaultyProvider(["status-500", "status-500"]) as server:
        ollama = environment(tmp_path, OLLAMA_HOST=server.url.removeprefix("http://"))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tailrace", "init", "--yes"),
            env=ollama,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        _, said = await process.communicate()
    assert process.returncode == 1
    assert "nothing was written" in said.decode()
    assert not (tmp_path / "config.yaml").exists()


async def test_init_asks_before_it_replaces_a_config_and_keeps_a_copy(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("agent: {max_turns: 3}\n")
    command = [sys.executable, "-m", "tailrace", "init", "--provider", "mistral", "--model", "large"]
    async with VirtualTerminal(command, environment(tmp_path)) as terminal:
        await terminal.until("Replace it? A copy is kept [y/N]")
        terminal.enter("")
        assert await terminal.exit_code() == 1
    assert load({}, tmp_path).agent.max_turns == 3
    async with VirtualTerminal(command, environment(tmp_path)) as terminal:
        await terminal.until("Replace it? A copy is kept [y/N]")
        terminal.enter("y")
        assert await terminal.exit_code() == 0
    assert load({}, tmp_path).model.name == "large"
    assert (tmp_path / "config.yaml.bak1").read_text() == "agent: {max_turns: 3}\n"


@pytest.mark.parametrize("ask", [is_agreed, ask_line])
def test_the_shells_prompt_stands_on_its_own_line_after_ctrl_c(
    ask: Callable[[str], object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.input", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ask("Replace it?")
    assert capsys.readouterr().err.endswith("\n")


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("[::1]:7", "http://[::1]:7/v1"),
        ("box:99", "http://box:99/v1"),
        ("https://box", "https://box:11434/v1"),
        ("box:nonsense", "http://box:11434/v1"),
    ],
)
def test_ollama_is_looked_for_where_its_own_clients_look(host: str, url: str) -> None:
    assert ollama_url({"OLLAMA_HOST": host}) == url


async def test_an_interrupted_trial_says_that_nothing_was_written(tmp_path: Path) -> None:
    async with FaultyProvider(["silence"]) as server:
        ollama = environment(tmp_path, OLLAMA_HOST=server.url.removeprefix("http://"))
        async with VirtualTerminal([sys.executable, "-m", "tailrace", "init"], ollama) as terminal:
            await terminal.until("A number, k, a, or provider/model [1]:")
            terminal.enter("")
            await terminal.until("for one word, 60 s at most …")
            terminal.type("\x03")
            assert await terminal.exit_code() == 130
            assert "interrupted; nothing was written" in terminal.lines, "a line of its own: the prompt comes below it"
    assert not (tmp_path / "config.yaml").exists()


@pytest.mark.parametrize(
    ("key", "provider"),
    [("sk-ant-x", "anthropic"), ("sk-or-v1-x", "openrouter"), ("sk-proj-x", "openai"), ("gsk_x", "groq"), ("x", "")],
)
def test_a_key_may_tell_whose_it_is(key: str, provider: str) -> None:
    assert provider_of_key(key) == provider


async def test_init_names_what_it_looked_for_and_takes_an_address_and_its_key(tmp_path: Path) -> None:
    """N5: no key is set and no Ollama runs."""
    async with FaultyProvider() as server:
        command = [sys.executable, "-m", "tailrace", "init"]
        nowhere = environment(tmp_path, OLLAMA_HOST="127.0.0.1:9")
        async with VirtualTerminal(command, nowhere, columns=120) as terminal:
            await terminal.until("A number, k, a, or provider/model [1]:")
            assert "OPENAI_API_KEY, ANTHROPIC_API_KEY" in terminal.text
            terminal.enter("a")
            await terminal.until("The address, as http://…/v1:")
            terminal.enter("localhost:1")
            await terminal.until("is no http:// or https:// address")
            terminal.enter(server.openai_url)
            await terminal.until("Its key, if it wants one (it is not shown):")
            terminal.enter("secret-of-mine")
            await terminal.until("Which model [ok]:")
            terminal.enter("")
            await terminal.until("it answers")
            assert await terminal.exit_code() == 0
        assert "secret-of-mine" not in terminal.text
        asked = server.requests[-1]
    assert asked.headers["authorization"] == "Bearer secret-of-mine"
    config = load({}, tmp_path)
    assert (config.model.provider, config.model.name) == ("own", "ok")
    assert config.providers["own"].base_url == server.openai_url
    assert "secret-of-mine" not in (tmp_path / "config.yaml").read_text()
    assert (tmp_path / "env").stat().st_mode & 0o077 == 0


async def test_init_takes_a_key_that_is_pasted_instead_of_an_answer(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tailrace", "init", "--no-test"]
    async with VirtualTerminal(command, environment(tmp_path, OLLAMA_HOST="127.0.0.1:9"), columns=120) as terminal:
        await terminal.until("A number, k, a, or provider/model [1]:")
        terminal.enter("sk-ant-mi ne")
        await terminal.until("error: a key is one word")
        terminal.enter("sk-ant-mine")
        assert await terminal.exit_code() == 0
    assert load({}, tmp_path).model.provider == "anthropic"
    assert (tmp_path / "env").read_text() == "ANTHROPIC_API_KEY=sk-ant-mine\n"


@pytest.mark.parametrize(
    "key", ["sk-0123456789abcdef", "sk-mine", "k3y", "aBcDeF/gHiJkL", "abcdefghijklmnop", "123456789"]
)
def test_init_repeats_nothing_that_may_be_a_key(key: str) -> None:
    with pytest.raises(ValueError, match=r"no provider of that name|not in the list") as mistake:
        _answered(key, [Candidate("local", "smollm2-135m", "")], "")
    assert not any(part in str(mistake.value) for part in key.split("/"))
    with pytest.raises(ValueError, match="no http://") as mistake:
        _at_address(key, "")
    assert key not in str(mistake.value)
    with pytest.raises(ValueError, match="no provider 'opnai'"):
        _answered("opnai/gpt-5", [], "")


async def test_init_keeps_a_pasted_key_where_its_owner_alone_reads_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tailrace", "init", "--no-test"]
    async with VirtualTerminal(command, environment(tmp_path, OLLAMA_HOST="127.0.0.1:9"), columns=120) as terminal:
        await terminal.until("A number, k, a, or provider/model [1]:")
        terminal.enter("k")
        await terminal.until("The key (it is not shown):")
        terminal.enter("sk-ant-mine")
        assert await terminal.exit_code() == 0
    assert "sk-ant-mine" not in terminal.text
    assert (tmp_path / "env").read_text() == "ANTHROPIC_API_KEY=sk-ant-mine\n"
    assert load({}, tmp_path).model.provider == "anthropic"
