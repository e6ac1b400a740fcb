"""`tailrace add matrix` with a real Synapse: whoever writes the code in a room with the bot is served."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from cli.commands.test_setup import environment
from cli.screen.vt import VirtualTerminal
from platforms.matrix.synapse import Homeserver, people
from tailrace.config.load import load


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
    assert config.platforms.matrix is not None
    assert config.platforms.matrix.allow == (ada.user_id,)
    assert (config.platforms.matrix.token_env, config.platforms.matrix.password_env) == ("MATRIX_TOKEN", None)
