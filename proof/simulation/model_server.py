"""The providers of a simulated world, behind the product's own `Transport` port: bytes over time, and no socket.

The model plays what the world says, by the question and the tool results that it finds in the request. It goes on from
a partial answer exactly where that ends, so that the text of a completed answer is known beforehand to the last letter.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from proof.simulation.loop import PROCESS, SimulatedLoop, never
from proof.simulation.world import Bad, Said, World
from tailrace.errors import StreamCut, TimedOut, Unavailable
from tailrace.messages import Dialect, JsonObject, Usage
from tailrace.providers.transport.port import CANNOT_CONNECT, HttpReply
from tailrace.testing.provider.compose import KEEP_ALIVE, Response, compose
from tailrace.testing.provider.scenario import Scenario, Status
from tailrace.testing.scripted.failures import FAILURES, error_events
from tailrace.testing.scripted.render import frame
from tailrace.testing.scripted.reply import Block, Reply, call, say, think
from tailrace.testing.scripted.request_reader import ScriptedRequest, scripted_request

QUESTION = re.compile(r"\[q(\d+)(?:\.(\d+))?\]")
STEER = re.compile(r"\[s\d+\]")
_WORDS = ("water", "wheel", "mill", "stream", "stone", "flour", "river", "grain")
_RESULTS = ("function_call_output", "tool_result")
_STATUSES = {"429": 429, "500": 500, "503": 503, "529": 529, "400": 400, "401": 401}
PERMANENT = frozenset({"400", "401"})
HARMLESS = frozenset({"ok", "drip", "slow", "whole", "late"})  # the answer arrives all the same
PING_S = 1.5


def question_text(number: int | str) -> str:
    return f"[q{number}] What does the mill need?"


def steer_text(number: int) -> str:
    return f"[s{number}] And the stone."


def step_text(number: int, step: int) -> str:
    """What a step of a sequence asks: it begins with the answer before, in whole."""
    before = f"{{{{steps.s{step - 1}.output.message.content}}}} " if step else ""
    return f"{before}[q{number}.{step}] What does the mill need?"


def answer_text(number: int, step: int, said: Said) -> str:
    """What the model says at this step of this question: no two answers share a word."""
    return " ".join(f"{_WORDS[(word + step) % 8]}-{number}-{step}-{word}" for word in range(said.words))


def tool_arguments(number: int, step: int) -> JsonObject:
    return {"question": number, "step": step, "note": f'so that "{number}.{step}" can be cut in two'}


class Place(NamedTuple):
    """Where a request stands in its conversation."""

    question: int
    step: int  # how many tool results the question has got
    partial: str  # of the answer that is asked for: what was shown of it


class ServedRequest(NamedTuple):
    """One request and what was done about it, for the rules."""

    at: float
    process: str
    place: Place
    fault: Bad
    usage: Usage


def place_of(body: JsonObject) -> Place:
    question, step, partial, ended = 0, 0, "", False
    items = body.get("messages", body.get("input"))
    for item in items if isinstance(items, list) else [{"role": "user", "content": items}]:
        text = "".join(_texts(item.get("content")))
        results = _results(item)
        if item.get("role") == "user" and (found := QUESTION.findall(text)):  # results before it are of the one before
            question, step, partial, ended = int(found[-1][0]), int(found[-1][1] or 0), "", False
        elif item.get("role") == "user" and STEER.search(text):  # after a whole answer it asks for one more
            step, partial, ended = step + results + ended, "", False
        elif results:
            step, partial = step + results, ""
        elif item.get("role") == "assistant":
            partial = "" if item.get("tool_calls") or _has_calls(item) else text
            ended = bool(partial)
        elif item.get("type") == "function_call":
            partial, ended = "", False
    return Place(question, step, partial)


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            if isinstance(part, dict) and part.get("type") in ("text", "input_text", "output_text"):
                yield str(part.get("text", ""))


def _results(item: JsonObject) -> int:
    if item.get("role") == "tool" or item.get("type") in _RESULTS:
        return 1
    content = item.get("content")
    return sum(_results(part) for part in content if isinstance(part, dict)) if isinstance(content, list) else 0


def _has_calls(item: JsonObject) -> bool:
    content = item.get("content")
    parts = content if isinstance(content, list) else []
    return any(isinstance(part, dict) and part.get("type") == "tool_use" for part in parts)


class SimulatedProvider:
    """Satisfies `providers.http.transport.Transport` for every process: an endpoint per dialect, one model."""

    def __init__(self, loop: SimulatedLoop, world: World, rng: Any, trace: Callable[[str], None]) -> None:
        self._loop = loop
        self._world = world
        self._rng = rng
        self._trace = trace
        self._asked: Counter[tuple[int, int]] = Counter()
        self.served: list[ServedRequest] = []
        self.broken: list[str] = []  # rules that a request broke
        self.told: list[list[str]] = []  # the messages for a turn under way that each request has
        self.open: list[SimulatedReply] = []

    def said(self, place: Place) -> Said:
        asks = self._world.asks
        if not 0 < place.question <= len(asks):
            return Said(words=3)
        said = asks[place.question - 1].said
        return said[place.step] if place.step < len(said) else Said(words=3)

    async def post(
        self, url: str, *, headers: Mapping[str, str], body: bytes, connect_timeout_s: float, socket_path: str = ""
    ) -> HttpReply:
        del headers, socket_path
        read: JsonObject = msgspec.json.decode(body)
        dialect: Dialect = (
            "anthropic" if url.endswith("/messages") else "responses" if url.endswith("/responses") else "chat"
        )
        place = place_of(read)
        self.told.append(STEER.findall(body.decode()))
        said = self.said(place)
        number = self._asked[place.question, place.step]
        self._asked[place.question, place.step] += 1
        fault = said.faults[number] if number < len(said.faults) else Bad()
        text = answer_text(place.question, place.step, said)
        if not text.startswith(place.partial):
            self.broken.append(f"question {place.question}: asked to go on from {place.partial!r}, of {text!r}")
            place = place._replace(partial="")
        self._trace(f"request q{place.question}.{place.step} +{len(place.partial)} {dialect} {fault.kind}@{fault.at}")
        comes_at = self._loop.time() + 0.02 + self._rng.random() * 0.05
        await self.until(comes_at)
        if fault.kind == "refused":
            self._serve(place, fault, Usage())
            raise Unavailable("cannot connect: connection refused", code=CANNOT_CONNECT)
        if fault.kind == "no-connect":
            self._serve(place, fault, Usage())
            await asyncio.sleep(connect_timeout_s)
            raise TimedOut(f"no connection within {connect_timeout_s:g} s", deadline="connect")
        if fault.kind == "late":
            comes_at += 2.0
            await self.until(comes_at)
        request = scripted_request(dialect, read)
        answer = self._answer(place, said, text, fault)
        self._serve(place, fault, answer.counted)
        return self._reply(answer, fault, dialect, request, comes_at)

    async def get(self, url: str, **_options: Any) -> HttpReply:  # noqa: ARG002 - the port's
        raise Unavailable("the simulated provider has this one route")

    def _serve(self, place: Place, fault: Bad, usage: Usage) -> None:
        process = PROCESS.get()
        name = process.name if process is not None else ""
        self.served.append(ServedRequest(self._loop.time(), name, place, fault, usage))

    def _answer(self, place: Place, said: Said, text: str, fault: Bad) -> Reply:
        if fault.kind == "empty":
            return Reply()
        rest = text[len(place.partial) :]
        blocks: list[Block] = [think("The miller thinks.", "c2lnbmVk")] if said.thinks and not place.partial else []
        if rest:
            blocks.append(say(rest))
        if fault.kind == "length":
            return Reply(tuple(blocks), stop="length")
        if said.tool:
            arguments = tool_arguments(place.question, place.step)
            blocks.append(call(said.tool, arguments, f"call_{place.question}_{place.step}"))
        return Reply(tuple(blocks))

    def _reply(
        self, answer: Reply, fault: Bad, dialect: Dialect, request: ScriptedRequest, comes_at: float
    ) -> SimulatedReply:
        kind = fault.kind
        status = Status(_STATUSES[kind], "2" if kind == "429" else "") if kind in _STATUSES else None
        instead: Any = {"html": "html", "garbage": "garbage", "whole": "json", "no-streaming": "no-streaming"}.get(kind)
        scenario = Scenario(reply=answer, status=status, instead=instead)
        response = compose(scenario, dialect, request)
        pieces = _pieces(response, fault, dialect, request)
        reply = SimulatedReply(self, response, fault, pieces, keep_alive=KEEP_ALIVE[dialect], comes_at=comes_at)
        self.open.append(reply)
        return reply

    def pace_s(self, fault: Bad) -> float:
        return 0.5 if fault.kind == "slow" else float(self._rng.random()) * 0.05

    async def until(self, at: float) -> None:
        """Returns when the world is so far: at once where the process hung meanwhile, which held nobody else up."""
        await asyncio.sleep(max(0.0, at - self._loop.time()))


class SimulatedReply(HttpReply):
    """The bytes of one answer, and what becomes of them on the way."""

    def __init__(
        self,
        provider: SimulatedProvider,
        response: Response,
        fault: Bad,
        pieces: list[bytes],
        *,
        keep_alive: bytes,
        comes_at: float,
    ) -> None:
        self._status = response.status
        self._headers: Mapping[str, str] = {"content-type": response.content_type, **response.headers}
        self.process = PROCESS.get()
        self._provider = provider
        self._fault = fault
        self._pieces = pieces
        self._keep_alive = keep_alive
        self._comes_at = comes_at  # the piece before
        self._closed = False
        self._at_end = False

    @property
    def status(self) -> int:
        return self._status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._headers

    @property
    def at_end(self) -> bool:
        return self._at_end

    async def read(self) -> bytes:
        if self._closed:
            raise StreamCut("the connection was closed")
        if self._pieces:
            self._comes_at += self._provider.pace_s(self._fault)
            await self._provider.until(self._comes_at)
            return self._pieces.pop(0)
        match self._fault.kind:
            case "cut":
                await asyncio.sleep(0)
                raise StreamCut("the connection broke in the middle of the answer", code="stream_cut")
            case "stall":
                await never()
            case "pings":
                await asyncio.sleep(PING_S)
                return self._keep_alive
            case _:
                pass
        self._at_end = True
        return b""

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._provider.open.remove(self)


def _pieces(response: Response, fault: Bad, dialect: Dialect, request: ScriptedRequest) -> list[bytes]:
    pieces = list(response.pieces)
    if fault.kind in ("cut", "end", "stall", "pings", "overloaded"):
        whole = b"".join(pieces)
        kept = whole[: len(whole) * fault.at // 100]
        if fault.kind in ("pings", "overloaded") and len(pieces) > 1:  # between two events
            kept = kept[: kept.rfind(b"\n\n") + 2] if b"\n\n" in kept else b""
        pieces = _split(kept, 160)
        if fault.kind == "overloaded" and response.content_type.startswith("text/event-stream"):
            failed = error_events(dialect, FAILURES["overloaded"], request, after=kept.count(b"\n\n"))
            pieces += [frame(event) for event in failed]
    elif fault.kind == "drip":
        pieces = _split(b"".join(pieces), max(1 + fault.at, sum(map(len, pieces)) // 60))
    elif len(pieces) > 12:  # as a busy socket hands them out: several events at once
        pieces = _split(b"".join(pieces), max(200, sum(map(len, pieces)) // 8))
    return pieces


def _split(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]
