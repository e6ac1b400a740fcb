"""An action that waits for a person: at the page of `tailrace serve`, in a chat that `approvals.notify` names, or here.

python examples/approval_by_phone.py "Order 20 kg of flour."
"""

import asyncio
import sys

from tailrace import Agent, tool
from tailrace.events import ApprovalAnswered, ApprovalAsked


@tool(effect="external")
def order(what: str, amount_kg: int) -> str:
    """Orders goods. It cannot be undone."""
    return f"{amount_kg} kg of {what} are on their way"


async def main(question: str) -> None:
    async with Agent(tools=[order], on_approval="wait").stream(question) as run:
        async for event in run.events:
            if isinstance(event, ApprovalAsked):
                print(f"waits for an answer: {event.command}", flush=True)  # or: await run.approve(event)
            elif isinstance(event, ApprovalAnswered):
                print(f"{event.by} says: {event.decision}")
        result = await run.result()
    for action in result.not_executed:
        print(f"not done: {action.command} ({action.reason})")
    print(result.text)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
