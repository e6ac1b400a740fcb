import asyncio

from tailrace import Agent


async def ask(step: str, question: str) -> str:
    return (await Agent(model="openai/gpt-5").run(question, key=f"report-1/{step}")).output


async def main() -> None:
    outline = await ask("outline", "Outline a text about tide mills.")
    parts = await asyncio.gather(*(ask(part, f"Write the {part} part: {outline}") for part in ("first", "second")))
    print(await ask("sum", f"Sum up in one sentence: {parts}"))


asyncio.run(main())
