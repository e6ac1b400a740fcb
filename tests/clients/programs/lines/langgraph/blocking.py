from langchain.agents import create_agent

print(create_agent("openai:gpt-5").invoke({"messages": "Name a river."})["messages"][-1].text)
