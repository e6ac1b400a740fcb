"""`tailrace add matrix` with a real Synapse."""

from __future__ import annotations

import sys
from pathlib import Path

from cli.commands.command_line import environment
from cli.screen.vt import VirtualTerminal
from integrations.matrix.synapse import Homeserver, password_of, people
from tailrace.integrations.matrix.session import SessionFile


async def test_the_session_of_a_password_is_kept_for_the_gateway_and_nowhere_else(
    server: Homeserver, tmp_path: Path
) -> None:
    """Homeservers allow few logins; and an access token is left in no temporary directory."""
    home, temporary = tmp_path / "home", tmp_path / "temporary"
    temporary.mkdir()
    async with people(server, "bot") as (account,):
        password = password_of(account.user_id)
        keys = ("--set", f"homeserver={server.url}", "--set", f"user={account.user_id}")
        command = [sys.executable, "-m", "tailrace", "add", "matrix", *keys]
        env = environment(home, TMPDIR=str(temporary))
        async with VirtualTerminal(command, env, columns=200) as terminal:
            await terminal.until("MATRIX_PASSWORD (it is not shown):")
            terminal.enter(password)
            assert await terminal.exit_code() == 0
    session = SessionFile(home, server.url, account.user_id).of(password)
    assert session is not None
    assert session.user_id == account.user_id
    assert list(temporary.iterdir()) == []
