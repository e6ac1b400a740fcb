"""A conversation of a Telegram group in a server's journal: Anna and Ben have spoken in it."""

from __future__ import annotations

from server.http_server import RunningServer
from tailrace.agent.turn_spec import TurnSpec
from tailrace.events.speakers import SpokenBy
from tailrace.messages import user

SESSION = "telegram:42"
ANNA, BEN = SpokenBy("7", "Anna"), SpokenBy("8", "Ben")
ASKED = f"{ANNA.head}\n| book it for me"  # what the model reads of Anna's question


async def group_chat(server: RunningServer) -> list[str]:
    """The ids of the two questions, which the server's provider answers."""
    runs = []
    for person, text in ((ANNA, "book it for me"), (BEN, "for me too")):
        spec = TurnSpec(user(text), requester=f"telegram:{person.id}", spoken_by=person)
        run = await server.app.agents.submit(spec, session=SESSION)
        await server.app.agents.finished(run.id)
        runs.append(run.id)
    return runs


def said(server: RunningServer) -> list[str]:
    """What the people said in the last request."""
    messages = server.provider.requests[-1].json()["messages"]
    return [message["content"] for message in messages if message["role"] == "user"]
