"""A chat in the terminal: one conversation, streamed. python examples/chat_bot.py"""

import asyncio

from tailrace import Agent, RunFailed


async def main() -> None:
    async with Agent(system="You are a friendly guide to rivers.", builtin=["web_fetch"]) as agent:
        while True:
            try:
                question = await asyncio.to_thread(input, "> ")
            except EOFError:
                return
            if not question.strip():
                continue
            try:
                async with agent.stream(question) as run:
                    async for text in run.text:
                        print(text, end="", flush=True)
            except RunFailed as exc:
                print(f"\n{exc}", end="")
            print()


if __name__ == "__main__":
    asyncio.run(main())
