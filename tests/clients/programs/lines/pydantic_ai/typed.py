from pydantic import BaseModel
from pydantic_ai import Agent


class River(BaseModel):
    name: str
    length_km: int


print(Agent("openai:gpt-5", output_type=River).run_sync("Name a river.").output.length_km)
