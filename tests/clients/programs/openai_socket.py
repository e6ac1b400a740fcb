"""OpenAI's SDK over its web socket: a response, one that goes on from it, one that is steered; a line for each."""

import asyncio
import json
import os

from openai import AsyncOpenAI

MODEL = os.environ["MODEL"]
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


def tell(**said):
    print(json.dumps(said), flush=True)


async def response_on(connection):
    async for event in connection:
        if event.type in ENDS:
            return event.response
    raise AssertionError("the connection has ended")


async def main():
    async with AsyncOpenAI(max_retries=0).responses.connect() as connection:
        ask = {"model": MODEL, "store": False, "stream_id": "main"}
        await connection.response.create(input="My name is Ada.", **ask)
        first = await response_on(connection)
        await connection.response.create(input="Who am I?", previous_response_id=first.id, **ask)
        second = await response_on(connection)
        tell(texts=[first.output_text, second.output_text])
        await connection.response.create(input="Plan it.", **{**ask, "stream_id": "plan"})
        created = []
        async for event in connection:
            if event.type == "response.created":
                created.append(event.response.id)
                if len(created) == 1:
                    await connection.response.steer(previous_response_id=created[0], input="Keep it small.")
            elif event.type == "response.steer.accepted":
                tell(accepted=event.steer.previous_response_id == created[0])
            elif event.type == "response.completed" and len(created) == 2:
                tell(steered=event.response.output_text, lane=event.stream_id)
                return


asyncio.run(main())
