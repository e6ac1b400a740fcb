"""SIGHUP and `tailrace reload`: a server takes up keys and models, and loses no run."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from cli.commands.serve_process import Process, served
from tailrace.cli.main import main
from tailrace.testing.provider import FaultyProvider, Scenario, reply

CONFIG = """\
model: {{provider: fake, name: any}}
providers: {{fake: {{dialect: chat, base_url: "{url}", key_env: FAKE_KEY}}}}
server: {{keys: [{{name: ada, key_env: {key}}}]}}
agent: {{tools: []}}
"""
TEXT = " ".join(f"word{number}" for number in range(60))


def write(home: Path, provider: FaultyProvider, *, key: str, more: str = "") -> None:
    (home / "config.yaml").write_text(CONFIG.format(url=provider.openai_url, key=key) + more, encoding="utf-8")
    (home / "env").write_text("FAKE_KEY=sk-fake\nFIRST=sk-first-key\nSECOND=sk-second-key\n", encoding="utf-8")
    (home / "env").chmod(0o600)


async def said(process: Process, words: str) -> str:
    """The next line of the log that has these words."""
    assert process.child.stderr is not None
    while True:
        line = (await process.child.stderr.readline()).decode()
        assert line, f"no line says {words!r}"
        if words in line:
            return line


async def ask(process: Process, key: str) -> tuple[int, str]:
    body = {"model": "tailrace", "messages": [{"role": "user", "content": "Hi."}]}
    headers = {"Authorization": f"Bearer {key}"}
    async with process.client.post(process.url + "/v1/chat/completions", json=body, headers=headers) as response:
        answer = await response.json()
        return response.status, answer["choices"][0]["message"]["content"] if response.status == 200 else ""


@pytest.mark.parametrize("args", [(), ("--workers", "2")])
async def test_a_signal_takes_up_keys_and_models_and_a_run_under_way_goes_on(
    tmp_path: Path, args: tuple[str, ...]
) -> None:
    slow = Scenario(reply=reply(TEXT), pace_s=0.05)
    async with FaultyProvider([slow]) as old, FaultyProvider([reply("New.")] * 4) as new:
        write(tmp_path, old, key="FIRST")
        async with served(tmp_path, *args) as process, asyncio.TaskGroup() as group:
            if args:
                await said(process, "worker 2 serves")
            running = group.create_task(ask(process, "sk-first-key"))
            await old.request(0)
            write(tmp_path, new, key="SECOND")
            process.child.send_signal(signal.SIGHUP)
            for _ in range(len(args) or 1):
                await said(process, "was read again")
            assert await ask(process, "sk-second-key") == (200, "New.")
            assert (await ask(process, "sk-first-key"))[0] == 401
            assert await running == (200, TEXT)


async def test_reload_asks_the_server_and_a_mistake_keeps_the_old_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path))
    async with FaultyProvider([reply("Old.")]) as old, FaultyProvider([reply("New.")]) as new:
        write(tmp_path, old, key="FIRST")
        async with served(tmp_path) as process:
            write(tmp_path, new, key="SECOND", more="nonsense: 1\n")
            assert await asyncio.to_thread(main, ["reload"]) == 1
            assert "nonsense" in capsys.readouterr().err
            process.child.send_signal(signal.SIGHUP)
            assert "config.yaml:5" in await said(process, "the old config stays")
            assert await ask(process, "sk-first-key") == (200, "Old.")
            write(tmp_path, new, key="SECOND", more="quirks: [{name: mine}]\nflows: {env_allow: [HOME]}\n")
            assert await asyncio.to_thread(main, ["reload"]) == 0
            await said(process, "was read again")
            await said(process, "changes of flows need a restart")
            assert await ask(process, "sk-second-key") == (200, "New.")
