"""The slash command about what was approved with "always": the list, and taking one back."""

from __future__ import annotations

import shutil

from tailrace.app.approvals import AlwaysApprovals, find_approval
from tailrace.cli.chat.slash.call import SlashCall
from tailrace.errors import TailraceError


async def approvals(call: SlashCall) -> None:
    from tailrace.cli.screen.approvals_table import approval_line, approvals_table
    from tailrace.cli.screen.painter import notice_room

    always = AlwaysApprovals(call.conversation.app.journal)
    listed = await always.listed()
    match call.argument.split():
        case [] if not listed:
            call.surface.notify('nothing was approved with "always"')
        case []:
            lines = approvals_table(listed, width=notice_room(shutil.get_terminal_size().columns))
            call.surface.notify("\n".join([*lines, "", "/approvals forget ID asks about one again"]))
        case ["forget", word]:
            found = find_approval(listed, word)
            await always.forget(found)
            call.surface.notify(f"asked about again: {approval_line(found)}")
        case _:
            raise TailraceError("/approvals lists them, /approvals forget ID asks about one again")
