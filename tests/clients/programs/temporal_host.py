"""Temporal's test server until the input ends; prints its address. Runs in the environment of the clients.

python temporal_host.py SERVER
"""

from __future__ import annotations

import asyncio
import sys

from temporalio.testing import WorkflowEnvironment


async def main(server: str) -> None:
    async with await WorkflowEnvironment.start_time_skipping(test_server_existing_path=server) as environment:
        sys.stdout.write(f"{environment.client.service_client.config.target_host}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
