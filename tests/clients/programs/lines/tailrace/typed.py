from msgspec import Struct

from tailrace import Agent


class River(Struct):
    name: str
    length_km: int


print(Agent(model="openai/gpt-5", output=River).run_sync("Name a river.").output.length_km)
