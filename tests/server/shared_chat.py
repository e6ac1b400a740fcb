"""A conversation of a Telegram group in a server's journal: Anna and Ben have spoken in it."""

from __future__ import annotations

from server.http_server import RunningServer
from tailrace.agent.service import TurnSpec
from tailrace.delivery.speakers import Speaker, Speakers
from tailrace.messages import user

SESSION = "telegram:42"
ABOVE = "[the messages above are from Anna]"


async def group_chat(server: RunningServer) -> list[str]:
    """The ids of the two questions, which the server's provider answers."""
    runs, known = [], Speakers()
    for person, text in ((Speaker("7", "Anna", "u1"), "book it for me"), (Speaker("8", "Ben", "u2"), "for me too")):
        known = await server.app.speakers.add(SESSION, person, known)
        spec = TurnSpec(user(text), requester=f"telegram:{person.id}", spoken_by=known.spoken_by(person))
        run = await server.app.agents.submit(spec, session=SESSION)
        await server.app.agents.finished(run.id)
        runs.append(run.id)
    return runs


def said(server: RunningServer) -> list[str]:
    """What the people said in the last request."""
    messages = server.provider.requests[-1].json()["messages"]
    return [message["content"] for message in messages if message["role"] == "user"]
