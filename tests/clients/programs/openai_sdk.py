"""OpenAI's SDK: the Responses loop of its manual, stored and not, and its chat loop."""

import json

from openai import AsyncOpenAI
from pydantic import BaseModel
from report import report, water_level, weather

client = AsyncOpenAI(max_retries=0)
QUESTION = "How are river and weather?"
TOOLS = {"water_level": water_level, "weather": weather}
PARAMETERS = {"water_level": "river", "weather": "city"}
STEPS = 3


class Level(BaseModel):
    river: str
    metres: int


def form(name):
    properties = {PARAMETERS[name]: {"type": "string"}}
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


RESPONSES_TOOLS = [{"type": "function", "name": name, "parameters": form(name), "strict": True} for name in TOOLS]
CHAT_TOOLS = [{"type": "function", "function": {"name": name, "parameters": form(name)}} for name in TOOLS]


def results_of(response):
    return [
        {
            "type": "function_call_output",
            "call_id": item.call_id,
            "output": TOOLS[item.name](**json.loads(item.arguments)),
        }
        for item in response.output
        if item.type == "function_call"
    ]


def kinds(response):
    return [item.type for item in response.output]


async def loop(model, **options):
    told, seen = [{"role": "user", "content": QUESTION}], []
    for _ in range(STEPS):
        response = await client.responses.create(
            model=model, input=told, tools=RESPONSES_TOOLS, reasoning={"summary": "auto"}, **options
        )
        seen.append(kinds(response))
        told += response.output
        told += results_of(response)
    return [seen, response.output_text]


async def input_plus_output(model):
    return await loop(model)


async def input_plus_output_unstored(model):
    return await loop(model, store=False, include=["reasoning.encrypted_content"])


async def input_plus_output_streamed(model):
    told, seen = [{"role": "user", "content": QUESTION}], []
    for _ in range(STEPS):
        async with client.responses.stream(
            model=model, input=told, tools=RESPONSES_TOOLS, include=["reasoning.encrypted_content"], store=False
        ) as events:
            async for _ in events:
                pass
            response = await events.get_final_response()
        seen.append(kinds(response))
        told += response.output
        told += results_of(response)
    return [seen, response.output_text]


async def previous_response(model):
    response, told, seen = None, QUESTION, []
    for _ in range(STEPS):
        before = {"previous_response_id": response.id} if response else {}
        response = await client.responses.create(model=model, input=told, tools=RESPONSES_TOOLS, **before)
        seen.append(kinds(response))
        told = results_of(response)
    return [seen, response.output_text]


async def background_resumed(model):
    """The stream is left after five events and resumed there, for each step of the loop."""
    told, seen = [{"role": "user", "content": QUESTION}], []
    for _ in range(STEPS):
        numbers = []
        async with await client.responses.create(
            model=model, input=told, tools=RESPONSES_TOOLS, background=True, stream=True
        ) as events:
            async for event in events:
                numbers.append(event.sequence_number)
                if event.type == "response.created":
                    response_id = event.response.id
                if len(numbers) == 5:
                    break
        async with await client.responses.retrieve(response_id, stream=True, starting_after=numbers[-1]) as events:
            async for event in events:
                numbers.append(event.sequence_number)
        assert numbers == [*range(len(numbers))], numbers
        assert event.type == "response.completed", event
        response = await client.responses.retrieve(response_id)
        assert response.output == event.response.output
        seen.append(kinds(response))
        told += response.output
        told += results_of(response)
    return [seen, response.output_text]


async def parsed(model):
    answer = await client.responses.parse(model=model, input=QUESTION, text_format=Level)
    return answer.output_parsed.model_dump()


async def chat(model):
    told, finishes = [{"role": "user", "content": QUESTION}], []
    for _ in range(STEPS):
        answer = await client.chat.completions.create(
            model=model, messages=told, tools=CHAT_TOOLS, max_completion_tokens=500
        )
        [choice] = answer.choices
        finishes.append(choice.finish_reason)
        told.append(choice.message)
        told += [
            {
                "role": "tool",
                "tool_call_id": call.id,
                "content": TOOLS[call.function.name](**json.loads(call.function.arguments)),
            }
            for call in choice.message.tool_calls or ()
        ]
    return [finishes, choice.message.content]


async def chat_parsed(model):
    answer = await client.chat.completions.parse(
        model=model, messages=[{"role": "user", "content": QUESTION}], response_format=Level
    )
    return answer.choices[0].message.parsed.model_dump()


report(
    input_plus_output,
    input_plus_output_unstored,
    input_plus_output_streamed,
    previous_response,
    background_resumed,
    parsed,
    chat,
    chat_parsed,
)
