"""`tailrace acp`: the agent inside an editor, by the Agent Client Protocol on stdin and stdout.

Nothing but the protocol is on stdout: what a library or a child process prints goes to stderr. A config that
cannot be loaded is an error of the first session, which the editor shows to the user.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tailrace.cli.main import DONE, FAILED, INTERRUPTED, print_error
from tailrace.cli.signals import loop_factory, stop_event
from tailrace.config.load import Config, load
from tailrace.errors import TailraceError
from tailrace.system.extras import install_command

if TYPE_CHECKING:
    from tailrace.app.telemetry.logging_setup import Level
    from tailrace.system.json_rpc.stdio import Pipes


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """None of its own: the editor says the rest."""


def run(args: argparse.Namespace) -> int:
    """0 when the editor has closed the pipe or a signal came, 1 where the extra is not installed."""
    if find_spec("acp") is None:
        print_error(f"tailrace acp needs an extra: {install_command('acp')}")
        return FAILED
    if sys.stdin.isatty():
        print("tailrace acp is for an editor to start; docs/integrations/acp.md says how", file=sys.stderr)  # noqa: T201 - a person started it
    from tailrace.system.json_rpc.stdio import take_stdio

    pipes = take_stdio()
    config: Config | TailraceError
    try:
        config = load(os.environ)
        _prepare(config, args.log_level)
    except TailraceError as exc:
        print_error(str(exc))
        config = exc
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_serve(config, pipes))
    except asyncio.CancelledError:  # by a second signal
        return INTERRUPTED
    return DONE


def _prepare(config: Config, level: Level | None) -> None:
    from tailrace.app.secrets.config_secrets import redactor_of, secrets_of
    from tailrace.app.secrets.own_environment import hide_secrets
    from tailrace.app.telemetry.logging_setup import configure

    redactor = redactor_of(config)
    hide_secrets(secrets_of(config))
    configure(redactor, level=level or "warning")


async def _serve(config: Config | TailraceError, pipes: Pipes) -> None:
    from tailrace.integrations.acp.serve import serve

    await serve(config, pipes, stop_event())
