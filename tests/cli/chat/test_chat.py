"""`tailrace chat` as a process: which model it asks, and a conversation on its standard streams."""

from __future__ import annotations

import os
import pty
import signal
from pathlib import Path

import pytest

from cli.chat.chat_process import Cli
from tailrace.config.load import load
from tailrace.testing.provider import reply

# ── whom to ask ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_stand_ins_answer_unless_a_model_was_asked_for_by_name(cli: Cli) -> None:
    cli.config["model"]["fallbacks"] = [{"provider": "faulty", "name": "ok"}]
    cli.config["model"]["name"] = "status-503"
    cli.config["call"] = {"max_attempts": 1}
    assert (await cli.run("-q", "?"))[0] == 0
    assert (await cli.run("-q", "?", "--model", "status-503"))[0] == 1


async def test_a_provider_needs_a_model(cli: Cli) -> None:
    code, _, err = await cli.run("-q", "?", "--provider", "openai")
    assert (code, err) == (2, "error: which model of openai? name it with --model\n")


@pytest.mark.parametrize("model", [("--model", "x"), ()])
async def test_a_provider_that_nobody_knows(cli: Cli, model: tuple[str, ...]) -> None:
    code, _, err = await cli.run("-q", "?", "--provider", "nobody", *model)
    assert code == 1
    assert err.startswith("error: providers.nobody: no such provider; there are anthropic, ")


async def test_a_missing_key_is_named(cli: Cli) -> None:
    cli.env.pop("OPENAI_API_KEY", None)
    code, _, err = await cli.run("-q", "?", "--provider", "openai", "--model", "x")
    assert (code, err) == (1, "error: providers.openai.key_env: OPENAI_API_KEY is not set in the environment\n")


async def test_J115_a_presets_key_stays_at_the_presets_address(cli: Cli) -> None:
    cli.env |= {"OPENAI_API_KEY": "sk-of-openai", "OWN_KEY": "sk-own"}
    cli.config["providers"]["openai"] = {"base_url": cli.server.openai_url}
    assert (await cli.run("-q", "?", "--provider", "openai", "--model", "ok"))[0] == 0
    cli.config["providers"]["openai"]["key_env"] = "OWN_KEY"
    assert (await cli.run("-q", "?", "--provider", "openai", "--model", "ok"))[0] == 0
    assert [request.headers.get("authorization") for request in cli.server.requests] == [None, "Bearer sk-own"]


@pytest.mark.parametrize(
    ("file", "env", "asked", "streams"),
    [
        (None, {}, None, True),  # a fresh clone
        (None, {"TAILRACE_STREAMING_ENABLED": "0"}, None, False),
        (None, {"TAILRACE_STREAMING_ENABLED": "1"}, None, True),
        (None, {}, False, False),
        ("{}", {}, None, True),
        ("{}", {}, True, True),
        ("streaming: {enabled: true}", {}, None, True),
        ("streaming: {enabled: false}", {}, None, False),
        ("streaming: {enabled: true, cli: false}", {}, None, False),
        ("streaming: {cli: true}", {"TAILRACE_STREAMING_ENABLED": "0"}, None, True),
        ("streaming: {cli: true}", {}, False, False),
    ],
)
def test_who_decides_whether_it_streams(
    tmp_path: Path, file: str | None, env: dict[str, str], asked: bool | None, streams: bool
) -> None:
    if file is not None:
        (tmp_path / "config.yaml").write_text(file)
    assert load(env, tmp_path).streams("cli", asked) is streams


# ── a conversation ───────────────────────────────────────────────────────────────────────────────────────────


async def test_a_conversation_remembers_and_survives_an_interrupt(cli: Cli) -> None:
    cli.server.extend(reply("Hello Ada."), "long+stall@50%", "status-400", reply("Ada."))
    terminal, stdin = pty.openpty()
    process = await cli.start(stdin=stdin)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert (await process.stderr.readuntil(b"> ")).startswith(b"ok (faulty).")
        os.write(terminal, b"I am Ada.\n")
        assert await process.stdout.readline() == b"Hello Ada.\n"

        await process.stderr.readuntil(b"> ")
        os.write(terminal, b"Go on.\n")
        assert await process.stdout.readexactly(len("word0")) == b"word0"
        process.send_signal(signal.SIGINT)
        assert b"interrupted" in await process.stderr.readuntil(b"> ")

        os.write(terminal, b"This fails.\n")
        assert b"error: " in await process.stderr.readuntil(b"> ")

        os.write(terminal, b"\nWho am I?\n")  # an empty line asks nothing
        request = await cli.server.request(3)
        os.write(terminal, b"\x04")
        rest, _ = await process.communicate()
        assert rest.endswith(b"Ada.\n")
        assert process.returncode == 0
    finally:
        os.close(terminal)
        os.close(stdin)
    messages = [(message["role"], message["content"]) for message in request.json()["messages"][1:]]
    assert messages[:3] == [("user", "I am Ada."), ("assistant", "Hello Ada."), ("user", "Go on.")]
    assert messages[3][0] == "assistant"
    assert messages[3][1].startswith("word0 word1 ")  # as far as it came
    assert messages[4:] == [("user", "This fails."), ("user", "Who am I?")]


async def test_a_session_whose_answer_is_under_way_is_joined_and_the_other_terminal_told(cli: Cli) -> None:
    cli.server.extend("long+stall@50%")
    asking = await cli.start("-q", "Go on.", "--session", "diary")
    assert asking.stdout is not None
    assert await asking.stdout.readexactly(len("word0")) == b"word0"
    terminal, stdin = pty.openpty()
    try:
        joined = await cli.start("--session", "diary", stdin=stdin)
        assert joined.stdout is not None
        assert joined.stderr is not None
        assert await joined.stdout.readexactly(len("word0 word1")) == b"word0 word1"
        assert b"> Go on.\n" in await joined.stderr.readuntil(b"> Go on.\n")
        joined.send_signal(signal.SIGINT)
        assert (await joined.stderr.readuntil(b"> ")).startswith(b"interrupted\n")
        os.write(terminal, b"\x04")
        await joined.communicate()
        assert joined.returncode == 0
    finally:
        os.close(terminal)
        os.close(stdin)
    _, err = await asking.communicate()
    assert (asking.returncode, err) == (130, b"stopped by another terminal\n")
    assert len(cli.server.requests) == 1
