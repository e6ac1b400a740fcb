"""`tailrace acp` from its first line to its last: the channel, the agent behind it, and an orderly end.

The process ends when the editor closes the pipe, or at a signal. A turn under way is released then: it is on record,
and goes on in another process, or when its session is loaded again.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress

from acp.connection import Connection

from tailrace.app import open_app
from tailrace.config.error_place import with_place
from tailrace.config.load import Config
from tailrace.errors import ConfigError, TailraceError
from tailrace.integrations.acp.agent import AcpAgent
from tailrace.integrations.acp.editor import Channel, Editor, EditorTransport
from tailrace.integrations.acp.session import stopped_when
from tailrace.runs.signals import Stopped, run_beside
from tailrace.system.json_rpc.stdio import Pipes, StdioChannel


async def serve(config: Config | TailraceError, pipes: Pipes, stop: asyncio.Event) -> None:
    """Speaks with one editor on these pipes."""
    await serve_channel(config, StdioChannel(pipes), stop)


async def serve_channel(config: Config | TailraceError, channel: Channel, stop: asyncio.Event) -> None:
    """Speaks with one editor. Where the config cannot be loaded, its first session fails with the reason."""
    editor = Editor(channel)
    agent = AcpAgent(editor, config if isinstance(config, Config) else None)
    connection = Connection(agent.handle, EditorTransport(channel), listening=False)
    editor.connect(connection)
    talking = asyncio.create_task(connection.main_loop())
    stopping = asyncio.create_task(stop.wait())
    try:
        async with AsyncExitStack() as stack:
            with suppress(Stopped):  # a process that got a signal does not wait for a store that does not answer
                await run_beside(_open(stack, agent, config), stopped_when(stop))
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
        agent.failed(with_place(exc, config) if isinstance(exc, ConfigError) else exc)
    else:
        agent.opened(app)
