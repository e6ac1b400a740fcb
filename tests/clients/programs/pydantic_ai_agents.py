"""pydantic-ai over OpenAI's chat and Responses and Anthropic's Messages: tools, typed output by tool and by schema."""

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel, OpenAIResponsesModelSettings
from report import report, water_level, weather

QUESTION = "How are river and weather?"
TOOLS = [water_level, weather]
SETTINGS = OpenAIResponsesModelSettings(openai_reasoning_summary="auto", openai_send_reasoning_ids=True)


class Level(BaseModel):
    river: str
    metres: int


async def turn(model, **options):
    result = await Agent(model, tools=TOOLS, **options).run(QUESTION)
    return [[part.part_kind for message in result.all_messages() for part in message.parts], result.output]


async def streamed(model, **options):
    async def watch(_context, events):
        async for _ in events:
            pass

    result = await Agent(model, tools=TOOLS, **options).run(QUESTION, event_stream_handler=watch)
    return [[part.part_kind for message in result.all_messages() for part in message.parts], result.output]


async def typed(model, output, **options):
    return (await Agent(model, tools=TOOLS, output_type=output, **options).run(QUESTION)).output.model_dump()


async def chat(model):
    return await turn(OpenAIChatModel(model))


async def chat_streamed(model):
    return await streamed(OpenAIChatModel(model))


async def chat_typed(model):
    return await typed(OpenAIChatModel(model), Level)


async def responses(model):
    return await turn(OpenAIResponsesModel(model), model_settings=SETTINGS)


async def responses_streamed(model):
    return await streamed(OpenAIResponsesModel(model), model_settings=SETTINGS)


async def responses_typed(model):
    return await typed(OpenAIResponsesModel(model), Level, model_settings=SETTINGS)


async def messages(model):
    return await turn(AnthropicModel(model))


async def messages_streamed(model):
    return await streamed(AnthropicModel(model))


async def messages_typed(model):
    return await typed(AnthropicModel(model), Level)


async def chat_native(model):
    return await typed(OpenAIChatModel(model), NativeOutput(Level))


report(
    chat,
    chat_streamed,
    chat_typed,
    chat_native,
    responses,
    responses_streamed,
    responses_typed,
    messages,
    messages_streamed,
    messages_typed,
)
