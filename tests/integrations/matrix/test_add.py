"""`tailrace add matrix` with a real Synapse: the bot serves each person who writes the code in a room with it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from cli.commands.command_line import environment
from cli.screen.vt import VirtualTerminal
from gateway.gateway_process import gateway_process
from gateway.gateways import config_for
from integrations.matrix.synapse import Homeserver, password_of, people
from tailrace.config.load import load
from tailrace.integrations.matrix import MatrixSettings
from tailrace.integrations.matrix.session import SessionFile
from tailrace.testing.provider import FaultyProvider, reply


async def test_a_person_invites_the_bot_and_is_paired_by_a_code(server: Homeserver, tmp_path: Path) -> None:
    async with people(server, "ada", "bot") as (ada, account):
        keys = ("--set", f"homeserver={server.url}", "--set", f"user={account.user_id}")
        command = [sys.executable, "-m", "tailrace", "add", "matrix", *keys]
        async with VirtualTerminal(command, environment(tmp_path, MATRIX_TOKEN=account.token), columns=200) as terminal:
            await terminal.until("and it serves you")
            [code] = re.findall(rf"invite {account.user_id} to a room .*, and write (\d{{6}}) there", terminal.text)
            room = await ada.room(account.user_id)
            await ada.until(lambda: (room, account.user_id) in ada.joined)
            await ada.write(room, code)
            assert await terminal.exit_code() == 0
    config = load({}, tmp_path)
    matrix = config.platforms.get("matrix", MatrixSettings)
    assert matrix is not None
    assert matrix.allow == (ada.user_id,)
    assert (matrix.token_env, matrix.password_env) == ("MATRIX_TOKEN", None)


async def test_the_session_of_a_password_is_kept_for_the_gateway_and_nowhere_else(
    server: Homeserver, tmp_path: Path
) -> None:
    """Homeservers allow few logins; and an access token is left in no temporary directory."""
    home, temporary = tmp_path / "home", tmp_path / "temporary"
    temporary.mkdir()
    async with people(server, "ada", "bot") as (ada, account):
        password = password_of(account.user_id)
        keys = ("--set", f"homeserver={server.url}", "--set", f"user={account.user_id}")
        command = [sys.executable, "-m", "tailrace", "add", "matrix", *keys]
        env = environment(home, TMPDIR=str(temporary))
        async with VirtualTerminal(command, env, columns=200) as terminal:
            await terminal.until("MATRIX_PASSWORD (it is not shown):")
            terminal.enter(password)
            await terminal.until("and it serves you")
            [code] = re.findall(r"and write (\d{6}) there", terminal.text)
            room = await ada.room(account.user_id)
            await ada.until(lambda: (room, account.user_id) in ada.joined)
            await ada.write(room, code)
            assert await terminal.exit_code() == 0
    session = SessionFile(home, server.url, account.user_id).of(password)
    assert session is not None
    assert session.user_id == account.user_id
    assert list(temporary.iterdir()) == []


async def test_what_is_written_between_the_pairing_and_the_first_gateway_is_answered(
    server: Homeserver, tmp_path: Path
) -> None:
    """The bot has said that it answers there once the gateway runs."""
    async with people(server, "ada", "bot") as (ada, account), FaultyProvider([reply("Here I am.")]) as provider:
        config_for(tmp_path, provider, "", {}, store="sqlite:///tailrace.db")
        file = tmp_path / "config.yaml"
        file.write_text(file.read_text().replace("platforms: {}\n", ""))
        keys = ("--set", f"homeserver={server.url}", "--set", f"user={account.user_id}")
        command = [sys.executable, "-m", "tailrace", "add", "matrix", *keys]
        env = {"MATRIX_TOKEN": account.token}
        room = await ada.room(account.user_id)
        await ada.write(room, "before there was anything")
        async with VirtualTerminal(command, environment(tmp_path, **env), columns=200) as terminal:
            await terminal.until("and it serves you")
            [code] = re.findall(r"and write (\d{6}) there", terminal.text)
            await ada.until(lambda: (room, account.user_id) in ada.joined)
            await ada.write(room, code)
            assert await terminal.exit_code() == 0
        await ada.write(room, "hello?")
        async with gateway_process(tmp_path, env):
            await ada.until(lambda: "Here I am." in [seen.text for seen in ada.from_(room, account.user_id)])
        [request] = provider.requests
        assert request.json()["messages"][-1]["content"] == "hello?"
