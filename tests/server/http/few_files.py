"""A process that listens on the loop of `tailrace serve` and may have few files open.

    python few_files.py FILES

Prints its port. Each connection is answered with a line and stays open until the client closes it.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import sys
from typing import cast

from tailrace.cli.signals import loop_factory
from tailrace.server.http.address import Address


class Greeting(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).write(b"hello\n")


async def main(files: int) -> None:
    listening = await Address("127.0.0.1", 0).listen(Greeting)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    sys.stdout.write(f"{listening.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    listening.close()


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(message)s")
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main(int(sys.argv[1])))
