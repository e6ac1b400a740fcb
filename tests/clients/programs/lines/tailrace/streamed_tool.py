from tailrace import Agent


def lookup(city: str) -> str:
    """The weather in a city."""
    return "rain"


agent = Agent(model="openai/gpt-5", tools=[lookup])
for text in agent.stream_sync("Do I need an umbrella in Bergen?"):
    print(text, end="", flush=True)
