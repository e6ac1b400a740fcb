from tailrace import Agent

print(Agent(model="openai/gpt-5").run_sync("Name a river.").output)
