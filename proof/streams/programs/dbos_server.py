"""A chat on DBOS streams, as DBOS's page on streaming responses shows it."""

import asyncio
import json
import os
import urllib.request
from typing import Any

import dbos_web
from dbos import DBOS
from openai import AsyncOpenAI

DBOS(config={"name": "numbers", "system_database_url": os.environ["DATABASE"]})
client = AsyncOpenAI(base_url=os.environ["PROVIDER"], api_key="none", timeout=3)
TOOL = {
    "type": "function",
    "function": {
        "name": "record",
        "description": "Asks for an address.",
        "parameters": {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]},
    },
}


@DBOS.step()
async def stream_completion(messages: list[dict[str, Any]]) -> dict[str, Any]:
    text = ""
    calls: dict[int, dict[str, Any]] = {}
    stream = await client.chat.completions.create(model="numbers", messages=messages, tools=[TOOL], stream=True)
    async for chunk in stream:
        if not chunk.choices:
            continue
        delta = chunk.choices[0].delta
        if delta.content:
            await DBOS.write_stream_async("tokens", delta.content)
            text += delta.content
        for piece in delta.tool_calls or []:
            call = calls.setdefault(piece.index, {"id": piece.id, "name": "", "arguments": ""})
            call["name"] += piece.function.name or ""
            call["arguments"] += piece.function.arguments or ""
    return {"text": text, "calls": list(calls.values())}


@DBOS.step()
async def record(url: str) -> str:
    return await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=5).read().decode())


@DBOS.workflow()
async def chat_workflow(prompt: str) -> str:
    messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    while True:
        answer = await stream_completion(messages)
        if not answer["calls"]:
            break
        called = [
            {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
            for call in answer["calls"]
        ]
        messages.append({"role": "assistant", "content": answer["text"] or None, "tool_calls": called})
        for call in answer["calls"]:
            output = await record(json.loads(call["arguments"])["url"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})
    await DBOS.close_stream_async("tokens")
    return str(answer["text"])


if __name__ == "__main__":
    dbos_web.serve(chat_workflow)
