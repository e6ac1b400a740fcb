"""A thousand short calls, fifty at a time, within a budget. Started again, it pays only for those that are missing.

python examples/batch.py jobs-2026-11 1000 200000
"""

import asyncio
import sys

from tailrace import Agent, RunFailed, RunResult


async def main(name: str, count: int, max_tokens: int) -> None:
    spent, places = 0, asyncio.Semaphore(50)

    async def label(number: int) -> RunResult | None:
        nonlocal spent
        async with places:
            if spent >= max_tokens:
                return None
            try:
                question = f"One word for a river of {number} km?"
                result = await agent.run(question, history=[], key=f"{name}/{number}", max_turns=1)
            except RunFailed as exc:
                print(exc, file=sys.stderr)
                return None
            spent += result.usage.input_tokens + result.usage.output_tokens
            return result

    async with Agent(system="Answer with one word.") as agent:
        results = await asyncio.gather(*(label(number) for number in range(1, count + 1)))
    print(f"{sum(result is not None for result in results)} of {count} done, {spent} tokens")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:])))
