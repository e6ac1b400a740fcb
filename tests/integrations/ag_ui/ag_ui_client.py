"""A client of `/ag-ui` that holds every event to the types of AG-UI's own Python package."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Any

import aiohttp
from ag_ui.core.events import Event
from pydantic import BaseModel, TypeAdapter

from server.http_server import RunningServer, sse
from tailrace.messages import JsonObject

EVENT: TypeAdapter[Any] = TypeAdapter(Event)
_ids = count(1)


def user(text: object, message_id: str = "") -> JsonObject:
    return {"id": message_id or f"u{next(_ids)}", "role": "user", "content": text}


def asked(*messages: JsonObject, thread: str = "t", run: str = "", **fields: object) -> JsonObject:
    """A `RunAgentInput`."""
    return {"threadId": thread, "runId": run or f"r{next(_ids)}", "messages": [*messages], **fields}


async def stream(server: RunningServer, body: JsonObject, **headers: str) -> AsyncIterator[JsonObject]:
    """The events as they come, each checked."""
    async with server.client.post(f"{server.url}/ag-ui", json=body, headers=headers) as response:
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        async for event in events_of(response):
            yield event


async def events_of(response: aiohttp.ClientResponse) -> AsyncIterator[JsonObject]:
    async for event in sse(response):
        del event["sse_event"]
        sse_id = event.pop("sse_id")
        parsed = EVENT.validate_python(event)
        assert not list(_unknown(parsed)), event
        yield {**event, "sse_id": sse_id}


def _unknown(value: object) -> Iterator[str]:
    """Fields that the protocol does not have."""
    if isinstance(value, BaseModel):
        yield from value.model_extra or ()
        for name in type(value).model_fields:
            yield from _unknown(getattr(value, name))
    elif isinstance(value, list):
        for each in value:
            yield from _unknown(each)


async def run(server: RunningServer, body: JsonObject, **headers: str) -> list[JsonObject]:
    """All events of a run."""
    return [event async for event in stream(server, body, **headers)]


async def refused(server: RunningServer, body: object, **headers: str) -> tuple[int, str]:
    """The status and the words of a refusal."""
    status, told = await server.json("POST", "/ag-ui", body, headers=headers)
    return status, told["error"]["message"]


def kinds(events: list[JsonObject]) -> list[str]:
    """The types in order, without steps, each once in a row."""
    named = [event["type"] for event in events if not event["type"].startswith("STEP_")]
    return [kind for place, kind in enumerate(named) if not place or named[place - 1] != kind]


def text(events: list[JsonObject]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


class Screen:
    """What a client holds after these events: a reducer as short as can be, for what the server must get right."""

    def __init__(self, messages: list[JsonObject] | None = None) -> None:
        self.messages: list[JsonObject] = [*(messages or ())]
        self.state: object = None

    def _find(self, message_id: str) -> JsonObject | None:
        return next((message for message in self.messages if message["id"] == message_id), None)

    def show(self, events: list[JsonObject]) -> Screen:
        for event in events:
            match event["type"]:
                case "TEXT_MESSAGE_START" | "REASONING_MESSAGE_START":
                    if self._find(event["messageId"]) is None:
                        self.messages.append({"id": event["messageId"], "role": event["role"], "content": ""})
                case "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT":
                    message = self._find(event["messageId"])
                    assert message is not None
                    message["content"] = message.get("content", "") + event["delta"]
                case "TOOL_CALL_START":
                    message = self._find(event["parentMessageId"])
                    if message is None:
                        message = {"id": event["parentMessageId"], "role": "assistant"}
                        self.messages.append(message)
                    function = {"name": event["toolCallName"], "arguments": ""}
                    call = {"id": event["toolCallId"], "type": "function", "function": function}
                    message.setdefault("toolCalls", []).append(call)
                case "TOOL_CALL_ARGS":
                    calls = [call for message in self.messages for call in message.get("toolCalls", ())]
                    called = next(call for call in calls if call["id"] == event["toolCallId"])
                    called["function"]["arguments"] += event["delta"]
                case "TOOL_CALL_RESULT":
                    shown = {name: event[name] for name in ("toolCallId", "content")}
                    self.messages.append({"id": event["messageId"], "role": "tool", **shown})
                case "MESSAGES_SNAPSHOT":
                    self.messages = [*event["messages"]]
                case "STATE_SNAPSHOT":
                    self.state = event["snapshot"]
                case _:
                    pass
        return self

    def said(self) -> list[tuple[str, object]]:
        return [(message["role"], message.get("content")) for message in self.messages]
