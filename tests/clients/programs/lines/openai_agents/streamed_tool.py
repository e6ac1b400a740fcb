import asyncio

from agents import Agent, Runner, function_tool


@function_tool
def lookup(city: str) -> str:
    """The weather in a city."""
    return "rain"


async def main() -> None:
    agent = Agent("guide", model="gpt-5", tools=[lookup])
    async for event in Runner.run_streamed(agent, "Do I need an umbrella in Bergen?").stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            print(event.data.delta, end="", flush=True)


asyncio.run(main())
