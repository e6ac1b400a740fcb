from pydantic_ai import Agent

print(Agent("openai:gpt-5").run_sync("Name a river.").output)
