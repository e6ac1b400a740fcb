"""A pydantic-ai agent with its DBOS capability; the handler of its events writes the text to a DBOS stream."""

import asyncio
import os
import urllib.request
from collections.abc import AsyncIterable
from typing import Any

import dbos_web
from dbos import DBOS
from pydantic_ai import Agent, AgentStreamEvent, PartDeltaEvent, PartStartEvent, RunContext, TextPart, TextPartDelta
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

DBOS(config={"name": "numbers", "system_database_url": os.environ["DATABASE"]})


async def write_text(_: RunContext[None], events: AsyncIterable[AgentStreamEvent]) -> None:
    async for event in events:
        text = ""
        if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
            text = event.part.content
        elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
            text = event.delta.content_delta
        if text:
            await DBOS.write_stream_async("tokens", text)


agent = Agent(
    OpenAIChatModel("numbers", provider=OpenAIProvider(base_url=os.environ["PROVIDER"], api_key="none")),
    name="numbers",
    model_settings={"timeout": 3},
    capabilities=[DBOSDurability(event_stream_handler=write_text)],
)


@agent.tool_plain
@DBOS.step()
async def record(url: str) -> str:
    """Asks for an address."""
    return await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=5).read().decode())


@DBOS.workflow()
async def chat_workflow(prompt: str) -> Any:
    result = await agent.run(prompt)
    await DBOS.close_stream_async("tokens")
    return result.output


if __name__ == "__main__":
    dbos_web.serve(chat_workflow)
