"""`tailrace mcp`: runs as tools for MCP hosts, on stdin and stdout, until the host closes its end.

Prints nothing but the protocol to stdout; the log goes to stderr. What runs when the host leaves goes on in another
process at once, where one lives, and in the next one otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from importlib.util import find_spec
from pathlib import Path

from tailrace.cli.argument_types import whole_number
from tailrace.cli.main import DONE, INTERRUPTED, USAGE, print_error
from tailrace.cli.signals import loop_factory, stop_event
from tailrace.config.load import Config
from tailrace.errors import ConfigError
from tailrace.runs.signals import FlatTaskGroup
from tailrace.system.extras import install_command
from tailrace.system.json_rpc.stdio import Pipes, take_stdio
from tailrace.system.working_directory import working_directory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--provider", help="the provider of runs that name no model")
    parser.add_argument("--model", help="that provider's name of the model")
    parser.add_argument("--directory", type=Path, help="where the agent works (the current directory)")
    parser.add_argument("--max-turns", metavar="N", type=whole_number(1), help="model calls in one run, at most")
    parser.add_argument("--yolo", action="store_true", help="approve without asking; the hard list stays blocked")
    parser.add_argument("--checkpoints", action="store_true", help="a snapshot before the first change of a run")


def run(args: argparse.Namespace, config: Config) -> int:
    """0 when the host is gone. Raises `ConfigError` where the extra is missing or the provider is unknown."""
    directory = (args.directory or working_directory()).expanduser().resolve()
    if not directory.is_dir():
        print_error(f"--directory: {directory} is not a directory")
        return USAGE
    if find_spec("mcp") is None:
        raise ConfigError(f"tailrace mcp needs an extra: {install_command('mcp')}")
    from tailrace.tools.mcp.connection import depth_in

    if depth_in(os.environ) > 1:
        raise ConfigError("tailrace mcp is a server of itself here, which would start without end", key="mcp.servers")
    if sys.stdin.isatty():
        sys.stderr.write("tailrace mcp is for an MCP host to start; docs/integrations/mcp_server.md says how\n")
    pipes = take_stdio()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        try:
            runner.run(_serve(args, config, directory, pipes))
        except asyncio.CancelledError:
            return INTERRUPTED
    return DONE


async def _serve(args: argparse.Namespace, config: Config, directory: Path, pipes: Pipes) -> None:
    from tailrace.agent.turn_spec import TurnSpec
    from tailrace.app import open_app
    from tailrace.app.models import check_known, chosen
    from tailrace.app.secrets.config_secrets import redactor_of
    from tailrace.app.telemetry.logging_setup import configure
    from tailrace.integrations.mcp_server.server import serve_stdio
    from tailrace.messages import user

    configure(redactor_of(config), level=args.log_level or "info")
    if args.provider:
        check_known(config, args.provider)
    choice = chosen(config, args.provider, args.model)
    defaults = TurnSpec(
        user(""),
        model=f"{choice.provider}/{choice.name}" if args.provider or args.model else "",
        directory=str(directory),
        yolo=args.yolo,
        checkpoints=args.checkpoints,
        max_turns=args.max_turns,
    )
    stop = stop_event()
    async with open_app(config, directory=directory) as app, app.processes:
        await app.recover()
        async with FlatTaskGroup() as group:
            recovering = group.create_task(app.keep_recovering())
            serving = group.create_task(serve_stdio(app, defaults, pipes))
            stopping = group.create_task(stop.wait())
            await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
            for task in (recovering, serving, stopping):
                task.cancel()
        await app.hand_over()
