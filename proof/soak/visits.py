"""What clients do in a soak. A visit is one thing that one client wants; it checks all that it is given.

A visit ends with a word that says how it went: the whole answer, an error that was told, or the client's own leaving.
Anything else raises `Broken`: an answer that is not the text, a log with a gap, a stream that ends without a word.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import aiohttp
import msgspec

from proof.soak.provider import ANSWER, TEXT
from tailrace.messages import Dialect, ErrorDelta, JsonObject
from tailrace.wire.dialects import DIALECTS
from tailrace.wire.sse import SseDecoder

WHOLE, TOLD, LEFT = "whole", "error told", "left"
LONGEST_VISIT_S: Final = 60.0
TOLD_STATUSES: Final = (429, 500, 502, 503, 504, 529)
_PATHS: Final[dict[Dialect, str]] = {
    "chat": "/v1/chat/completions",
    "anthropic": "/v1/messages",
    "responses": "/v1/responses",
}
_SEQUENCE: Final = {
    "name": "soak",
    "blocks": [
        {
            "type": "step",
            "id": "ask",
            "handler": "llm_call",
            "params": {"provider": "chat", "model": "text", "messages": [{"role": "user", "content": "Say it."}]},
            "retry": {"max_attempts": 2},
        }
    ],
}


class Broken(AssertionError):
    """A promise that was not kept."""


class Client:
    """One client and its luck."""

    def __init__(self, http: aiohttp.ClientSession, url: str, rng: random.Random) -> None:
        self._http, self._url, self.rng = http, url, rng
        self._sequence = ""

    def post(self, path: str, body: JsonObject) -> aiohttp.client._RequestContextManager:
        return self._http.post(self._url + path, json=body)

    async def got(self, path: str) -> Any:
        async with self._http.get(self._url + path) as response:
            return await response.json()

    async def posted(self, path: str, body: JsonObject) -> Any:
        async with self.post(path, body) as response:
            if response.status >= 300:
                raise Broken(f"POST {path}: {response.status} {await response.text()}")
            return await response.json()

    async def events(self, path: str, query: str) -> AsyncIterator[JsonObject]:
        """The events of a stream, up to its end."""
        decoder = SseDecoder()
        async with self._http.get(f"{self._url}{path}?{query}") as response:
            async for data in response.content.iter_any():
                for event in decoder.feed(data):
                    if event.data:
                        yield msgspec.json.decode(event.data)

    async def sequence(self) -> str:
        if not self._sequence:
            self._sequence = (await self.posted("/sequences", _SEQUENCE))["id"]
        return self._sequence


Visit = Callable[[Client], Awaitable[str]]


def request_body(dialect: Dialect, *, stream: bool) -> JsonObject:
    question = {"role": "user", "content": "Say it."}
    body: JsonObject = {"model": f"{dialect}/text", "stream": stream}
    if dialect == "responses":
        return body | {"input": [question], "store": False}
    return body | {"messages": [question]} | ({"max_tokens": 4096} if dialect == "anthropic" else {})


async def raw_stream(client: Client) -> str:
    """A raw model's stream, read to its end; now and then by a client that reads slowly."""
    dialect = client.rng.choice(tuple(_PATHS))
    slow = client.rng.random() < 0.1
    decoder = DIALECTS[dialect].decoder()
    async with client.post(_PATHS[dialect], request_body(dialect, stream=True)) as response:
        if response.status != 200:
            return await _told(response)
        async for data in response.content.iter_any():
            if any(isinstance(delta, ErrorDelta) for delta in decoder.feed(data)):
                return TOLD
            if slow:
                await asyncio.sleep(0.05)
    if not decoder.complete:
        raise Broken(f"a {dialect} stream ended without its end or an error")
    return _checked(DIALECTS[dialect].completion_from_body(decoder.rebuilt_body()).text)


async def raw_whole(client: Client) -> str:
    dialect = client.rng.choice(tuple(_PATHS))
    async with client.post(_PATHS[dialect], request_body(dialect, stream=False)) as response:
        if response.status != 200:
            return await _told(response)
        return _checked(DIALECTS[dialect].completion_from_body(await response.json()).text)


async def leaving(client: Client) -> str:
    """A client that goes away in the middle of its stream."""
    dialect = client.rng.choice(tuple(_PATHS))
    async with client.post(_PATHS[dialect], request_body(dialect, stream=True)) as response:
        if response.status == 200:
            await response.content.readany()
        response.close()
    return LEFT


async def stored_response(client: Client) -> str:
    """A response in the background, followed to its end and then read again."""
    body = {"model": "responses/text", "input": "Say it.", "background": True, "store": True}
    made = await client.posted("/v1/responses", body)
    [_ async for _ in client.events(f"/v1/responses/{made['id']}", "stream=true")]
    made = await client.got(f"/v1/responses/{made['id']}")
    if made["status"] == "failed":
        return TOLD
    return _checked(DIALECTS["responses"].completion_from_body(made).text)


async def agent_run(client: Client) -> str:
    """A turn of the agent with a tool, watched by a viewer who comes back several times."""
    run_id = (await client.posted("/runs", {"input": "What does the note say?"}))["id"]
    seq, last = 0, JsonObject()
    while last.get("type") != "run_finished":
        async for event in client.events(f"/runs/{run_id}/stream", f"after={seq}"):
            if event["seq"] <= seq:
                raise Broken(f"run {run_id}: entry {event['seq']} came again after {seq}")
            seq, last = event["seq"], event
            if client.rng.random() < 0.05:
                break  # the viewer goes away, and comes back for the rest
    if last["status"] == "completed" and not last["output"].endswith(ANSWER):
        raise Broken(f"run {run_id} said {last['output']!r}")
    if last["status"] == "completed":
        return WHOLE
    if not last.get("error") and last["status"] != "incomplete":
        raise Broken(f"run {run_id} is {last['status']} and does not say why")
    return TOLD


async def sequence_instance(client: Client) -> str:
    instance = (await client.posted("/instances", {"sequence_id": await client.sequence()}))["id"]
    [_ async for _ in client.events(f"/instances/{instance}/stream", "after=0")]
    made = await client.got(f"/instances/{instance}")
    if made["state"] == "failed":
        return TOLD
    return _checked(made["outputs"]["ask"]["message"]["content"])


async def looking_around(client: Client) -> str:
    """What a page and a monitor ask for."""
    for path in ("/runs", "/sessions", "/v1/models"):
        await client.got(path)
    return WHOLE


VISITS: Final[tuple[tuple[Visit, int], ...]] = (
    (raw_stream, 10),
    (raw_whole, 3),
    (leaving, 3),
    (agent_run, 5),
    (stored_response, 2),
    (sequence_instance, 2),
    (looking_around, 1),
)


async def visit(client: Client) -> tuple[str, str]:
    """One visit, chosen by the client's luck: its name, and how it went. Raises `Broken`."""
    chosen = client.rng.choices([each for each, _ in VISITS], [weight for _, weight in VISITS])[0]
    try:
        async with asyncio.timeout(LONGEST_VISIT_S):
            return chosen.__name__, await chosen(client)
    except TimeoutError:
        raise Broken(f"{chosen.__name__} had no end within {LONGEST_VISIT_S:g} s") from None
    except aiohttp.ClientError as exc:
        raise Broken(f"{chosen.__name__}: the server broke off: {exc!r}") from exc


def _checked(text: str) -> str:
    if text != TEXT:
        raise Broken(f"an answer of {len(text)} characters is not the text: …{text[-40:]!r}")
    return WHOLE


async def _told(response: aiohttp.ClientResponse) -> str:
    body = await response.json()
    if response.status not in TOLD_STATUSES or not body.get("error"):
        raise Broken(f"an answer with status {response.status}: {body}")
    return TOLD
