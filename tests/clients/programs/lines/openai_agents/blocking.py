from agents import Agent, Runner

print(Runner.run_sync(Agent("guide", model="gpt-5"), "Name a river.").final_output)
