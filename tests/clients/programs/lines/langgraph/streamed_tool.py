from langchain.agents import create_agent


def lookup(city: str) -> str:
    """The weather in a city."""
    return "rain"


agent = create_agent("openai:gpt-5", [lookup])
for chunk, _ in agent.stream({"messages": "Do I need an umbrella in Bergen?"}, stream_mode="messages"):
    print(chunk.text, end="", flush=True)
