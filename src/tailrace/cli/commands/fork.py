"""`tailrace fork`: a run that begins from another one, after any of its events, printed as it goes.

With a question it is what the user says next; without one the turn goes on, or its question is asked again. The fork is
executed by this process and has a session of its own: the other run and its session stay as they are.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.cli.argument_types import whole_number
from tailrace.cli.main import INTERRUPTED
from tailrace.cli.signals import cancel_on_sigterm, loop_factory
from tailrace.config.load import Config
from tailrace.system.own_program import typed

if TYPE_CHECKING:
    from tailrace.events import Entry


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's id, the beginning of one, or `last`")
    parser.add_argument(
        "prompt", metavar="PROMPT", nargs="*", default=[], help="what to say there instead; may follow the options"
    )
    parser.add_argument(
        "--after",
        metavar="N",
        type=whole_number(0),
        help="the last event that counts, by its seq; 0: before the question. Default: with a PROMPT the end, else 0",
    )
    parser.add_argument("--model", metavar="[PROVIDER/]NAME", help="another model from there on")
    parser.add_argument(
        "--stream",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="show the answer as it comes, or at the end",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the events of the fork from run_forked on, one a line"
    )
    parser.add_argument("--yolo", action="store_true", help="approve without asking; the hard list stays blocked")


def run(args: argparse.Namespace, config: Config) -> int:
    """0 done, 1 failed, 3 incomplete, 130 interrupted. Raises `TailraceError`, `KeyboardInterrupt`."""
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_fork(args, config))
    except asyncio.CancelledError:  # by a signal other than Ctrl-C's
        return INTERRUPTED


async def _fork(args: argparse.Namespace, config: Config) -> int:
    from tailrace.agent.fork import ForkRequest
    from tailrace.agent.session import TURN_KIND
    from tailrace.app import open_app
    from tailrace.app.models import full_name, named
    from tailrace.cli.chat.oneshot import OneShot, print_status
    from tailrace.cli.chat.options import REQUESTER
    from tailrace.cli.chat.tty_approval import TerminalAsker
    from tailrace.cli.run_names import find_run
    from tailrace.messages import user

    cancel_on_sigterm()
    async with open_app(config) as app:
        source = await find_run(app.journal, args.run, kind=TURN_KIND)
        prompt = " ".join(args.prompt).strip()
        after = args.after if args.after is not None else source.last_seq if prompt else 0
        asker = TerminalAsker.open()
        try:
            spec = await app.agents.forked_turn(
                ForkRequest(
                    source.id,
                    after,
                    user(prompt) if prompt else None,
                    full_name(config, args.model) if args.model else None,
                    requester=REQUESTER,
                    reachable=asker is not None,
                    yolo=args.yolo,
                )
            )
            await app.models.make_ready(named(config, spec.model))
            fork = await app.agents.start_fork(spec)
            going_on = typed(f"chat --session {fork.new.session}")
            print_status(f"forked {source.id} as {fork.id}; go on with: {going_on}")
            shot = OneShot(
                app,
                streamed=config.streams("cli", args.stream),
                as_json=args.json,
                reasoning=config.agent.show_reasoning,
                asker=asker,
                footer=True,
            )
            shot.pass_over(_inherited(await app.journal.read(fork.id)))
            return await shot.join(fork.id)
        finally:
            if asker is not None:
                asker.close()


def _inherited(entries: Sequence[Entry]) -> Sequence[Entry]:
    """What the fork has from the other run, where the user has seen it: all before `RunForked`."""
    from tailrace.events import RunForked

    return entries[: next((at for at, entry in enumerate(entries) if isinstance(entry.event, RunForked)), 0)]
