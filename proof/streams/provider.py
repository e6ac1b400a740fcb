"""A provider of Chat Completions that numbers its words and misbehaves as the plan of a run says.

A run is recognised by its name in the user's message. The fault meets the first attempt alone: a product that asks
again gets a healthy answer. As a model does, it goes on from the text that the request ends with, where a product
asks it to continue. The tool that it asks for is called at `/tool/RUN`: a side effect in the world, which is counted.
It takes any result of its call for the result and never makes the call again by itself; a request without a result
is a request of a product that has forgotten the call.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from proof.streams.history import History, digest, numbered_word

_RUN_NAME = re.compile(r"\brun-[\w-]+\b")
_OK = re.compile(r"(?i)\bok\W+true\b")  # what the tool answers, however it is quoted
_WORD = re.compile(r"\bt(\d+)\.(run-[\w-]+)\.[a-z]")
GONE_S = 10.0
MAX_TOOL_CALLS = 3  # attempts, and calls that the product has forgotten
STALL_S = 60.0  # no product's patience is as long; the test gives up before


@dataclass
class Plan:
    """What a run's model says, and what goes wrong at word `at` of the first attempt."""

    fault: str = "none"
    at: int = 0
    words: int = 40
    pace_s: float = 0.02
    padding: int = 0
    tool: tuple[str, dict[str, Any]] | None = None  # what the model asks for before it answers
    attempts: int = 0
    tool_attempts: int = 0
    told: bool = False  # the result of its call is that there is none, or none that is known


@dataclass
class Provider:
    history: History
    plans: dict[str, Plan] = field(default_factory=dict)
    port: int = 0

    def __post_init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._returning: asyncio.Task[None] | None = None
        self._tools = asyncio.Condition()
        self._tools_begun = 0
        self.holds_tools = False  # a tool has its effect at once, and its answer when this ends

    @property
    def url(self) -> str:
        """The base URL that a product is given."""
        return f"http://127.0.0.1:{self.port}/v1"

    def tool_url(self, run: str) -> str:
        return f"http://127.0.0.1:{self.port}/tool/{run}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._returning is not None:
            self._returning.cancel()
        self._leave()
        for serving in self._serving:
            serving.cancel()
        await asyncio.gather(*self._serving)

    def _leave(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()

    def _go_away(self) -> bool:
        """Every connection breaks, and new ones are refused, until it is back. Once: False where it was gone before."""

        async def back() -> None:
            await asyncio.sleep(GONE_S)
            await self.start()

        if self._returning is not None:
            return False
        self._leave()
        self._returning = asyncio.create_task(back())
        return True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.current_task()
        assert serving is not None
        self._writers.add(writer)
        self._serving.add(serving)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                length = re.search(r"(?im)^content-length:\s*(\d+)", head)
                body = await reader.readexactly(int(length[1])) if length else b""
                await self._answer(head.split()[1], body, writer)
        except (OSError, EOFError, asyncio.CancelledError):  # asyncio logs a connection's task that was cancelled
            pass
        finally:
            self._serving.discard(serving)
            self._writers.discard(writer)
            with suppress(OSError):
                writer.close()

    async def _answer(self, path: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        if "/tool/" in path:
            run = path.rpartition("/")[2]
            self.history.write("tool", run, "ran", call=run)
            async with self._tools:
                self._tools_begun += 1
                self._tools.notify_all()
                await self._tools.wait_for(lambda: not self.holds_tools)
            await _whole(writer, {"ok": True})
        elif path.endswith("/chat/completions"):
            await self._complete(json.loads(body), writer)
        elif "/models" in path:
            await _whole(writer, {"object": "list", "data": [{"id": "numbers", "object": "model"}]})
        else:
            await _whole(writer, {"error": {"message": f"no route {path}"}}, status="404 Not Found")

    async def tools_begun(self, number: int) -> None:
        """Returns when so many tools have had their effect."""
        async with self._tools:
            await self._tools.wait_for(lambda: self._tools_begun >= number)

    async def answer_tools(self) -> None:
        async with self._tools:
            self.holds_tools = False
            self._tools.notify_all()

    async def _complete(self, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        messages = request["messages"]
        run = _run_of(messages)
        plan = self.plans.get(run)
        if plan is None:  # a title, a summary: a request of the product's own
            if request.get("stream"):
                await _stream(writer, request, _pieces({"content": "Numbers"}, "stop"), self._go_away)
            else:
                await _message(writer, request, {"content": "Numbers"})
            return
        results = [json.dumps(message["content"]) for message in messages if message["role"] == "tool"]
        if results and not plan.told and not any(map(_OK.search, results)):
            plan.told = True
            self.history.write("provider", run, "told")
        asks_tool = plan.tool is not None and plan.tool_attempts < MAX_TOOL_CALLS and not results
        if asks_tool:
            plan.tool_attempts += 1
        else:
            plan.attempts += 1
        attempt = plan.tool_attempts if asks_tool else plan.attempts
        self.history.write("provider", run, "asked", attempt=attempt, length=plan.words, tool=asks_tool)
        if request.get("stream"):
            pieces = self._tool_events(plan, attempt) if asks_tool else self._events(run, plan, attempt, messages)
            await _stream(writer, request, pieces, self._go_away)
        elif asks_tool:
            await _message(writer, request, {"content": None, "tool_calls": [_call(plan)]})
        else:
            first = _said_before(messages, run) + 1
            words = range(first, plan.words + 1)
            for n in words:
                self._said(run, attempt, n)
            text = "".join(numbered_word(n, run, attempt, plan.padding) for n in words)
            await _message(writer, request, {"content": text})

    def _said(self, run: str, attempt: int, n: int) -> None:
        plan = self.plans[run]
        word = numbered_word(n, run, attempt, plan.padding)
        self.history.write("provider", run, "said", attempt=attempt, n=n, hash=digest(word))

    async def _events(
        self, run: str, plan: Plan, attempt: int, messages: list[dict[str, Any]]
    ) -> AsyncIterator[dict[str, Any] | str]:
        """Deltas of the answer, or the names of what is done to the connection."""
        fault = plan.fault if attempt == 1 and plan.fault != "cut-in-tool" else "none"
        yield {"role": "assistant", "content": ""}
        if fault == "empty":
            yield "stop"
            return
        if fault == "no-tool-call":
            yield "tool_calls"
            return
        for n in range(_said_before(messages, run) + 1, plan.words + 1):
            if n == plan.at and fault != "none":
                yield fault
            if plan.pace_s:
                await asyncio.sleep(plan.pace_s)
            self._said(run, attempt, n)
            yield {"content": numbered_word(n, run, attempt, plan.padding)}
        yield "stop"

    async def _tool_events(self, plan: Plan, attempt: int) -> AsyncIterator[dict[str, Any] | str]:
        yield {"role": "assistant", "content": None}
        assert plan.tool is not None
        name, arguments = plan.tool
        written = json.dumps(arguments)
        half = len(written) // 2
        yield _call_delta({"name": name, "arguments": written[:half]}, opens=True)
        if plan.fault == "cut-in-tool" and attempt == 1:
            yield "cut"
        yield _call_delta({"arguments": written[half:]})
        yield "tool_calls"


def _run_of(messages: list[dict[str, Any]]) -> str:
    """The run that the last user's message names."""
    users = [json.dumps(message["content"]) for message in messages if message["role"] == "user"]
    names = [name for text in users for name in _RUN_NAME.findall(re.sub(_WORD, "", text))]
    return names[-1] if names else ""


def _said_before(messages: list[dict[str, Any]], run: str) -> int:
    """The last word of this run in what the request has of the model's own answer."""
    said = _WORD.findall(" ".join(json.dumps(message) for message in messages if message["role"] == "assistant"))
    return max((int(n) for n, of in said if of == run), default=0)


def _call_delta(function: dict[str, str], *, opens: bool = False) -> dict[str, Any]:
    begun = {"id": "call_1", "type": "function"} if opens else {}
    return {"tool_calls": [{"index": 0, **begun, "function": function}]}


def _call(plan: Plan) -> dict[str, Any]:
    assert plan.tool is not None
    name, arguments = plan.tool
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


async def _pieces(*pieces: dict[str, Any] | str) -> AsyncIterator[dict[str, Any] | str]:
    for piece in pieces:
        yield piece


# ── on the wire ──


async def _whole(writer: asyncio.StreamWriter, body: object, status: str = "200 OK") -> None:
    content = json.dumps(body).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    await writer.drain()


async def _message(writer: asyncio.StreamWriter, request: dict[str, Any], message: dict[str, Any]) -> None:
    reason = "tool_calls" if "tool_calls" in message else "stop"
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    usage = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
    await _whole(writer, {**_envelope(request, "chat.completion"), "choices": [choice], "usage": usage})


def _envelope(request: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1_700_000_000, "model": request.get("model", "numbers")}


async def _stream(
    writer: asyncio.StreamWriter,
    request: dict[str, Any],
    pieces: AsyncIterator[dict[str, Any] | str],
    go_away: Callable[[], bool],
) -> None:
    """A dict is a delta; a name is the end, or what happens to the connection at this place."""
    envelope = _envelope(request, "chat.completion.chunk")

    def write(data: str) -> None:
        event = f"data: {data}\n\n".encode()
        writer.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")

    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    writer.write(head.encode())
    async for piece in pieces:
        match piece:
            case "cut":
                await writer.drain()
                writer.transport.abort()
                return
            case "stall":
                await writer.drain()
                await asyncio.sleep(STALL_S)
                writer.transport.abort()
                return
            case "gone":
                if go_away():
                    return
            case "malformed":
                write('{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"t')
            case "429":
                error = {"message": "Rate limit reached", "type": "rate_limit_error", "code": "rate_limit_exceeded"}
                write(json.dumps({"error": error}))
                writer.write(b"0\r\n\r\n")
                await writer.drain()
                writer.close()
                return
            case "stop" | "tool_calls":
                choice = {"index": 0, "delta": {}, "finish_reason": piece}
                write(json.dumps({**envelope, "choices": [choice]}))
                usage = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
                if (request.get("stream_options") or {}).get("include_usage"):
                    write(json.dumps({**envelope, "choices": [], "usage": usage}))
                write("[DONE]")
            case dict():
                choice = {"index": 0, "delta": piece, "finish_reason": None}
                write(json.dumps({**envelope, "choices": [choice]}))
            case _:
                raise ValueError(f"no such fault: {piece}")
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()
