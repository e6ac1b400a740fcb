from langchain.agents import create_agent
from pydantic import BaseModel


class River(BaseModel):
    name: str
    length_km: int


agent = create_agent("openai:gpt-5", response_format=River)
print(agent.invoke({"messages": "Name a river."})["structured_response"].length_km)
