"""A writer that asks researchers, each an agent of its own. python examples/research.py "tide mills" """

import asyncio
import sys

from tailrace import Agent, tool
from tailrace.runs.view.changes import Change, SubRunBegan


@tool(repeatable=True, parallel=True)
def library(topic: str) -> str:
    """What the town library has about a topic."""
    return f"'A short history of {topic}', 1921, shelf 12"


async def show(change: Change) -> None:
    if isinstance(change, SubRunBegan):
        print(f"{change.tool_name} works; watch it: tailrace tail {change.run_id}", file=sys.stderr)


async def main(topic: str) -> None:
    researcher = Agent(tools=[library], system="Find facts. Name your sources.", max_turns=10)
    critic = Agent(system="Say in two sentences what is missing.")
    tools = [researcher.as_tool("research", "Finds facts."), critic.as_tool("review", "Reviews a draft.")]
    writer = Agent(tools=tools, on_change=show, max_tokens=50_000)
    print((await writer.run(f"Write three sentences about {topic}, reviewed once.")).text)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
