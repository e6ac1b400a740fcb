"""Anthropic's SDK: its tool runner, whole and streamed, its parser and its counting."""

from anthropic import AsyncAnthropic, beta_async_tool
from pydantic import BaseModel
from report import report, water_level, weather

client = AsyncAnthropic(max_retries=0)
QUESTION = [{"role": "user", "content": "How are river and weather?"}]


class Level(BaseModel):
    river: str
    metres: int


@beta_async_tool
async def _water_level(river: str) -> str:
    """The level of a river."""
    return water_level(river)


@beta_async_tool
async def _weather(city: str) -> str:
    """The weather in a city."""
    return weather(city)


_water_level.name, _weather.name = "water_level", "weather"


def texts(message) -> list[str]:
    return [block.text for block in message.content if block.type == "text"]


async def tool_runner(model):
    runner = client.beta.messages.tool_runner(
        model=model, max_tokens=4096, tools=[_water_level, _weather], messages=QUESTION
    )
    stops = [message.stop_reason async for message in runner]
    return [stops, texts(await runner.until_done())]


async def tool_runner_thinking(model):
    runner = client.beta.messages.tool_runner(
        model=model,
        max_tokens=4096,
        tools=[_water_level, _weather],
        messages=QUESTION,
        thinking={"type": "adaptive"},
        output_config={"effort": "high"},
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        betas=["context-management-2025-06-27"],
    )
    stops, thoughts = [], 0
    async for message in runner:
        stops.append(message.stop_reason)
        thoughts += sum(block.type == "thinking" for block in message.content)
    return [stops, thoughts, texts(await runner.until_done())]


async def tool_runner_streamed(model):
    runner = client.beta.messages.tool_runner(
        model=model, max_tokens=4096, tools=[_water_level, _weather], messages=QUESTION, stream=True
    )
    stops = []
    async for stream in runner:
        async for _ in stream:
            pass
        last = await stream.get_final_message()
        stops.append(last.stop_reason)
    return [stops, texts(last)]


async def parsed(model):
    answer = await client.messages.parse(model=model, max_tokens=100, messages=QUESTION, output_format=Level)
    return answer.parsed_output.model_dump()


async def counted(model):
    count = await client.messages.count_tokens(model=model, messages=QUESTION)
    return count.input_tokens > 0


report(tool_runner, tool_runner_thinking, tool_runner_streamed, parsed, counted)
