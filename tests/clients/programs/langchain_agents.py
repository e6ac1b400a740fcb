"""LangChain's agent over its chat models of OpenAI (chat and Responses) and Anthropic, and their structured output."""

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
from report import report, water_level, weather

QUESTION = "How are river and weather?"
TOOLS = [water_level, weather]


class Level(BaseModel):
    """A river's level."""

    river: str
    metres: int


def openai_chat(model):
    return ChatOpenAI(model=model, max_retries=0, max_tokens=500)


def openai_responses(model):
    return ChatOpenAI(model=model, max_retries=0, use_responses_api=True, reasoning={"summary": "auto"})


def anthropic_messages(model):
    return ChatAnthropic(model=model, max_retries=0, max_tokens=4096, thinking={"type": "adaptive"})


async def turn(model):
    result = await create_agent(model, TOOLS).ainvoke({"messages": [("user", QUESTION)]})
    return [[message.type for message in result["messages"]], result["messages"][-1].text]


async def streamed(model):
    async for _, state in create_agent(model, TOOLS).astream(
        {"messages": [("user", QUESTION)]}, stream_mode=["messages", "values"]
    ):
        last = state
    return [[message.type for message in last["messages"]], last["messages"][-1].text]


async def typed(model):
    answer = await model.with_structured_output(Level).ainvoke(QUESTION)
    return answer.model_dump()


async def chat(model):
    return await turn(openai_chat(model))


async def chat_streamed(model):
    return await streamed(openai_chat(model))


async def chat_typed(model):
    return await typed(openai_chat(model))


async def responses(model):
    return await turn(openai_responses(model))


async def responses_streamed(model):
    return await streamed(openai_responses(model))


async def responses_typed(model):
    return await typed(openai_responses(model))


async def messages(model):
    return await turn(anthropic_messages(model))


async def messages_streamed(model):
    return await streamed(anthropic_messages(model))


async def messages_typed(model):
    return await typed(ChatAnthropic(model=model, max_retries=0, max_tokens=4096))


report(
    chat,
    chat_streamed,
    chat_typed,
    responses,
    responses_streamed,
    responses_typed,
    messages,
    messages_streamed,
    messages_typed,
)
