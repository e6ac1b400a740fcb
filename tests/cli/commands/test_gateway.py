"""`tailrace gateway` as a process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from tailrace.app import open_app
from tailrace.calls.service import CallSpec
from tailrace.config.load import load
from tailrace.events import MessageChunk
from tailrace.gateway.chat_settings import Pairing
from tailrace.journal.open_journal import open_journal
from tailrace.runs.recovery import finished
from tailrace.testing.provider import FaultyProvider, reply


def gateway(home: Path, *args: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("TAILRACE_", "HERMES_"))}
    return subprocess.run(
        [sys.executable, "-m", "tailrace", "gateway", *args],
        env={**env, "TAILRACE_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


async def test_pair_lets_in_the_user_who_was_given_the_code(tmp_path: Path) -> None:
    async with open_journal("sqlite:///tailrace.db", tmp_path / "tailrace.db") as journal:  # as a live gateway has it
        pairing = Pairing(journal)
        code = await pairing.code_for("telegram:7", "Ada\x1b[2J")
        assert code is not None
        done = await asyncio.to_thread(gateway, tmp_path, "--pair", code)
        assert (done.returncode, done.stdout) == (0, "telegram:7 (Ada[2J) is let in\n")
        assert await pairing.is_paired("telegram:7")
        again = await asyncio.to_thread(gateway, tmp_path, "--pair", code)
    assert again.returncode == 1
    assert "no such pairing code" in again.stderr


async def test_who_was_let_in_is_listed_and_can_be_let_out(tmp_path: Path) -> None:
    async with open_journal("sqlite:///tailrace.db", tmp_path / "tailrace.db") as journal:  # as a live gateway has it
        pairing = Pairing(journal)
        nobody = await asyncio.to_thread(gateway, tmp_path, "--paired")
        assert (nobody.returncode, nobody.stdout) == (0, "no user was let in by a code\n")
        for user, name in (("telegram:7", "Ada\x1b[2J"), ("slack:U8", ""), ("matrix:@b:c.d", "Bob")):
            await pairing.accept(await pairing.code_for(user, name) or "")
        await journal.swap_value("pairing.users", "telegram:6", None, b"true")  # by an earlier version
        listed = await asyncio.to_thread(gateway, tmp_path, "--paired")
        assert listed.stdout == "matrix:@b:c.d (Bob)\nslack:U8\ntelegram:6\ntelegram:7 (Ada[2J)\n"
        done = await asyncio.to_thread(gateway, tmp_path, "--unpair", "telegram:7")
        assert (done.returncode, done.stdout) == (0, "telegram:7 is no longer let in\n")
        assert not await pairing.is_paired("telegram:7")
        assert set(await journal.list_values("pairing.names")) == {"matrix:@b:c.d"}
        again = await asyncio.to_thread(gateway, tmp_path, "--unpair", "telegram:7")
    assert again.returncode == 1
    assert "no such user was let in by a code: 'telegram:7'" in again.stderr


def test_pairing_needs_a_store_that_is_shared(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("store: {url: 'memory://'}", encoding="utf-8")
    done = gateway(tmp_path, "--pair", "ABCDEFGH")
    assert done.returncode == 1
    assert "store.url: pairing needs a store that the gateway shares" in done.stderr


def test_without_a_platform_it_says_what_to_do(tmp_path: Path) -> None:
    done = gateway(tmp_path)
    assert done.returncode == 1
    told = "no platform is enabled; tailrace add connects one (docs/chats.md)"
    assert done.stderr == f"error: platforms: {told}\n"


def test_a_platform_that_cannot_start_is_not_called_disabled(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("platforms: {homeassistant: {enabled: true}}")
    done = gateway(tmp_path)
    assert done.returncode == 1
    assert "platforms.homeassistant.url: is missing" in done.stderr
    told = (
        f"error: {tmp_path}/config.yaml:1: platforms: no platform could be started; tailrace doctor says what to do\n"
    )
    assert done.stderr.endswith(told)


async def test_the_gateway_alone_goes_on_with_a_background_response(tmp_path: Path) -> None:
    """Its process died, and no server is started again."""
    text = "The tailrace carries the water on."
    async with FaultyProvider(script=["ok+stall@50%", reply(text)]) as server:
        (tmp_path / "config.yaml").write_text(
            f"providers: {{up: {{dialect: chat, base_url: '{server.url}'}}}}\n"
            "platforms: {homeassistant: {enabled: true, url: 'http://127.0.0.1:9'}}\n",
            encoding="utf-8",
        )
        async with open_app(load({}, tmp_path), directory=tmp_path) as app:
            spec = CallSpec({"input": "Where does it go?", "model": "up/ok", "stream": True})
            run = await app.calls.submit(spec, model="up/ok", session="", durability="committed")
            async for batch in app.journal.tail(run.id):
                if any(isinstance(entry.event, MessageChunk) for entry in batch):
                    break
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tailrace", "gateway"),
            env={"PATH": os.environ["PATH"], "TAILRACE_HOME": str(tmp_path), "HASS_TOKEN": "t"},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with open_journal("sqlite:///tailrace.db", tmp_path / "tailrace.db") as journal:
                assert (await finished(journal, run.id)).status == "completed"
        finally:
            process.terminate()
            await process.wait()
