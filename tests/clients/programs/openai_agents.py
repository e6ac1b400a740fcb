"""openai-agents with its default (Responses) model and with its chat model."""

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from openai.types.shared import Reasoning
from pydantic import BaseModel
from report import report, water_level, weather

set_tracing_disabled(True)
client = AsyncOpenAI(max_retries=0)
QUESTION = "How are river and weather?"
SETTINGS = ModelSettings(reasoning=Reasoning(summary="auto"))
TOOLS = [function_tool(water_level), function_tool(weather)]


class Level(BaseModel):
    river: str
    metres: int


def agent(model, **options):
    return Agent(name="Guide", instructions="Use the tools.", model=model, tools=TOOLS, **options)


def told(result):
    return [[item.type for item in result.new_items], result.final_output]


async def responses(model):
    return told(await Runner.run(agent(OpenAIResponsesModel(model, client), model_settings=SETTINGS), QUESTION))


async def responses_streamed(model):
    result = Runner.run_streamed(agent(OpenAIResponsesModel(model, client), model_settings=SETTINGS), QUESTION)
    async for _ in result.stream_events():
        pass
    return told(result)


async def responses_typed(model):
    result = await Runner.run(agent(OpenAIResponsesModel(model, client), output_type=Level), QUESTION)
    return result.final_output.model_dump()


async def chat(model):
    return told(await Runner.run(agent(OpenAIChatCompletionsModel(model, client)), QUESTION))


async def chat_typed(model):
    result = await Runner.run(agent(OpenAIChatCompletionsModel(model, client), output_type=Level), QUESTION)
    return result.final_output.model_dump()


report(responses, responses_streamed, responses_typed, chat, chat_typed)
