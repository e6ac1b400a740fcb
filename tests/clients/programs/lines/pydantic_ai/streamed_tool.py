from pydantic_ai import Agent


def lookup(city: str) -> str:
    """The weather in a city."""
    return "rain"


agent = Agent("openai:gpt-5", tools=[lookup])
for text in agent.run_stream_sync("Do I need an umbrella in Bergen?").stream_text(delta=True):
    print(text, end="", flush=True)
