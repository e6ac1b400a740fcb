"""Kill it in the middle and start it again: it goes on, and nothing is paid for twice.

python examples/resume_after_kill.py report-7 "Write a page about tide mills."
"""

import asyncio
import sys

from tailrace import Agent, tool


@tool(repeatable=True)
def look_up(topic: str) -> str:
    """Takes a while."""
    print(f"looked up {topic}", flush=True)
    return f"{topic}: the first one dates from 619"


async def main(key: str, question: str) -> None:
    async with Agent(tools=[look_up]).stream(question, key=key) as run:  # the same key is the same run
        print(f"run {run.id}", flush=True)
        async for text in run.text:
            print(text, end="", flush=True)
    print()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
