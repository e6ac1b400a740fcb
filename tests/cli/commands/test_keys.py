"""`tailrace keys`: a running server takes a key that was made, and refuses one that was revoked, in every worker."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from cli.commands.serve_process import Process, served
from tailrace.cli.main import main
from tailrace.testing.provider import FaultyProvider, Scenario, reply

CONFIG = """\
model: {{provider: fake, name: any}}
providers: {{fake: {{dialect: chat, base_url: "{url}", key_env: FAKE_KEY}}}}
agent: {{tools: []}}
{more}
"""
BODY = {"model": "fake/any", "messages": [{"role": "user", "content": "Hi."}], "max_tokens": 50}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path))
    (tmp_path / "env").write_text("FAKE_KEY=sk-fake\nADA=sk-ada\n", encoding="utf-8")
    (tmp_path / "env").chmod(0o600)
    return tmp_path


def write(home: Path, url: str = "http://127.0.0.1:9/v1", more: str = "") -> None:
    (home / "config.yaml").write_text(CONFIG.format(url=url, more=more), encoding="utf-8")


async def keys(*args: str) -> int:
    return await asyncio.to_thread(main, ["keys", *args])


async def status(process: Process, key: str) -> int:
    headers = {"Authorization": f"Bearer {key}"}
    async with process.client.post(process.url + "/v1/chat/completions", json=BODY, headers=headers) as response:
        return response.status


async def until(process: Process, key: str, wanted: int, *, times: int = 1) -> None:
    """Each worker hears of a change by itself: the answers are the wanted ones as often, one after the other."""
    seen = 0
    async with asyncio.timeout(30):
        while seen < times:
            seen = seen + 1 if await status(process, key) == wanted else 0


@pytest.mark.parametrize("args", [(), ("--workers", "2")])
async def test_a_key_opens_a_running_server_until_it_is_revoked(
    home: Path, args: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    async with FaultyProvider([Scenario(reply=reply("Hi."))] * 99) as provider:
        write(home, provider.openai_url)
        async with served(home, *args) as process:
            assert await status(process, "") == 200  # no key yet: the machine's own users are let in
            assert await keys("add", "ci", "--scopes", "models", "--models", "fake/*") == 0
            made = capsys.readouterr()
            key = made.out.strip()
            assert made.out == f"{key}\n"
            assert "401" in made.err
            assert len(key) > 40
            await until(process, "", 401, times=20)
            await until(process, key, 200)
            async with process.client.get(process.url + "/runs", headers={"x-api-key": key}) as response:
                assert response.status == 403  # its scopes are models alone
            assert await keys("revoke", "ci") == 0
            await until(process, key, 401, times=20)
            assert await status(process, "") == 401  # the last key is gone: the server does not open again
        assert key.encode() not in (home / "tailrace.db").read_bytes()


async def test_the_budget_of_a_stored_key_holds(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with FaultyProvider([Scenario(reply=reply("Hi."))] * 99) as provider:
        write(home, provider.openai_url)
        assert await keys("add", "poor", "--tokens-per-day", "1") == 0
        key = capsys.readouterr().out.strip()
        async with served(home) as process:
            assert await status(process, key) == 200
            await until(process, key, 429)


async def test_keys_are_listed_without_their_secrets(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(home, more="server: {keys: [{name: ada, key_env: ADA, tokens_per_day: 9}]}")
    assert await keys("add", "ci", "--rpm", "60", "--usd-per-day", "5") == 0
    key = capsys.readouterr().out.strip()
    assert await keys("ls") == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("ada", "60", "$5.00"))
    assert key not in shown
    assert await keys("ls", "--json") == 0
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["name"], row["source"], row["tokens_per_day"], row["usd_per_day"]) for row in listed] == [
        ("ada", "config", 9, None),
        ("ci", "store", None, 5.0),
    ]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("add", "ada"), "taken"),
        (("add", "default"), "taken"),
        (("add", "a b"), "no name"),
        (("add", "x", "--scopes", "read"), "no scope 'read'"),
        (("add", "x", "--scopes", ","), "at least one scope"),
        (("add", "ci"), "there is a key 'ci'"),
        (("revoke", "none"), "no key 'none'"),
        (("revoke", "ada"), "in the config"),
    ],
)
async def test_a_mistake_is_one_line(
    home: Path, args: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(home, more="server: {keys: [{name: ada, key_env: ADA}]}")
    assert await keys("add", "ci") == 0
    capsys.readouterr()
    assert await keys(*args) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert words in shown.err
    assert shown.err.count("\n") == 1
