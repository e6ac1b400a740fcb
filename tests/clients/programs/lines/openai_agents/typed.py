from agents import Agent, Runner
from pydantic import BaseModel


class River(BaseModel):
    name: str
    length_km: int


print(Runner.run_sync(Agent("guide", model="gpt-5", output_type=River), "Name a river.").final_output.length_km)
