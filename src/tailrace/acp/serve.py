"""`tailrace acp` from its first line to its last: the channel, the agent behind it, and an orderly end.

The process ends when the editor closes the pipe, or at a signal. A turn under way is given back then: it is on record,
and goes on in another process, or when its session is loaded again.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from acp.connection import Connection

from tailrace.acp.agent import AcpAgent
from tailrace.acp.editor import Editor
from tailrace.app import open_app
from tailrace.config.load import Config
from tailrace.errors import TailraceError
from tailrace.system.json_rpc.stdio import Pipes, StdioChannel


async def serve(config: Config | TailraceError, pipes: Pipes, stop: asyncio.Event) -> None:
    """Speaks with one editor. Where the config cannot be loaded, it is told so at its first session."""
    transport = StdioChannel(pipes)
    editor = Editor(transport)
    agent = AcpAgent(editor, config if isinstance(config, Config) else None)
    connection = Connection(agent.handle, transport, listening=False)
    editor.connect(connection)
    talking = asyncio.create_task(connection.main_loop())
    stopping = asyncio.create_task(stop.wait())
    try:
        async with AsyncExitStack() as stack:
            await _open(stack, agent, config)
            await asyncio.wait({talking, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if talking.done():
                await agent.answer_the_rest()
            await connection.close()  # the requests under way are cancelled, their turns are not
            await agent.close()
    finally:
        talking.cancel()
        stopping.cancel()
        await asyncio.wait({talking, stopping})


async def _open(stack: AsyncExitStack, agent: AcpAgent, config: Config | TailraceError) -> None:
    if isinstance(config, TailraceError):
        agent.failed(config)
        return
    try:
        app = await stack.enter_async_context(open_app(config))
    except TailraceError as exc:
        agent.failed(exc)
    else:
        agent.opened(app)
