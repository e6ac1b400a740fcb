"""`python -m tailrace.testing.provider`: the misbehaving provider by hand, for clients that run elsewhere."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from typing import NoReturn

from tailrace.testing.provider.names import catalogue, scenario
from tailrace.testing.provider.scenario import UnknownScenario
from tailrace.testing.provider.server import FaultyProvider


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, without the usage above it."""
        self.exit(2, f"error: {message}; see --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m tailrace.testing.provider",
        description="A model endpoint of three dialects that misbehaves on request. The model's name chooses how: "
        "ok, tools, cut@120, status-429-after-2, tools+crlf+stall@50%, …",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=_port, default=9000, help="port to listen on; 0 picks a free one (%(default)s)")
    parser.add_argument(
        "--script",
        nargs="+",
        type=_scenario_name,
        default=[],
        metavar="SCENARIO",
        help="scenarios for the first requests, in order, whatever model they name",
    )
    parser.add_argument("--list", action="store_true", help="print every term a scenario can be made of, and end")
    return parser


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"'{text}' is not a port between 0 and 65535")
    return int(text)


def _scenario_name(text: str) -> str:
    try:
        scenario(text)
    except UnknownScenario as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None
    return text


def _print_catalogue() -> None:
    sys.stdout.write("a scenario is terms joined by +, e.g. tools+crlf+cut@120 (N: bytes of the body, or N%)\n")
    for heading, terms in catalogue():
        sys.stdout.write(f"\n{heading}\n")
        sys.stdout.writelines(f"  {name:<26} {summary}\n" for name, summary in terms)
    sys.stdout.flush()  # a closed pipe is noticed here, not while the interpreter shuts down


async def _serve(options: argparse.Namespace) -> int:
    """Until a signal comes; the exit status says which."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()

    def stop(status: int) -> None:
        if not stopped.done():
            stopped.set_result(status)

    loop.add_signal_handler(signal.SIGINT, stop, 130)
    loop.add_signal_handler(signal.SIGTERM, stop, 0)
    async with FaultyProvider(options.script, host=options.host, port=options.port) as server:
        sys.stdout.write(
            f"listening on {server.url} · OpenAI clients: base_url={server.openai_url} · "
            f"Anthropic clients: base_url={server.url} · any key, model=<scenario>\n"
        )
        sys.stdout.flush()
        return await stopped


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.list:
        try:
            _print_catalogue()
        except BrokenPipeError:  # the reader has seen enough; what is still buffered must not be flushed into the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    try:
        return asyncio.run(_serve(options))
    except OSError as exc:
        reason = os.strerror(exc.errno) if exc.errno and exc.errno > 0 else exc.strerror or str(exc)
        sys.stderr.write(f"error: cannot listen on {options.host}:{options.port}: {reason.lower()}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
