"""The provider that misbehaves on request, over a real socket: its port, its script and its log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from tailrace.config.load import CONFIG_FILE, Config, load
from tailrace.messages import JsonObject
from tailrace.testing.provider.connection import Connection, RecordedRequest
from tailrace.testing.provider.kept import KeptResponses
from tailrace.testing.provider.names import scenario
from tailrace.testing.provider.replies import REPLIES
from tailrace.testing.provider.scenario import Scenario
from tailrace.testing.scripted.failures import Failure
from tailrace.testing.scripted.reply import Reply, reply
from tailrace.testing.scripted.request_reader import ScriptedRequest

SAID_BEFORE = 12  # characters of a text by which it is known again
_RESULTS = ("function_call_output", "custom_tool_call_output", "tool_result")


class FaultyProvider:
    """An endpoint of all three dialects that answers as request, and keeps a log of who asked.

    Each request takes the next item of `script`; when none is left, the request's model names one of `turns` or a
    scenario. The answers of a turn are given in order, by the number of tool results in the request; its last answer
    has no calls, or is given again and again. Responses that were asked for with `background` and `store` are kept: a
    GET for one takes the faults of the next item.

        async with FaultyProvider(["status-529", reply("Hello.")]) as provider:
            agent = Agent(config=provider.config)
            assert (await agent.run("Hi.")).text == "Hello."
    """

    def __init__(
        self,
        script: Iterable[str | Scenario | Reply] = (),
        *,
        turns: Mapping[str, Sequence[Reply]] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        """Raises `UnknownScenario` for a name in the script that is none, `ValueError` for a turn without answers."""
        self.requests: list[RecordedRequest] = []
        self.connections = 0  # ever accepted
        self.kept = KeptResponses()
        self.flowing = asyncio.Event()  # clear it, and each answer waits before its next piece until it is set again
        self.flowing.set()
        self._script = [_as_scenario(item) for item in script]
        self.turns = {name: tuple(steps) for name, steps in (turns or {}).items()}
        if empty := next((name for name, steps in self.turns.items() if not steps), None):
            raise ValueError(f"the turn '{empty}' has no answers")
        self._host, self._port = host, port
        self._server: asyncio.Server | None = None
        self._home: TemporaryDirectory[str] | None = None
        self._open: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._bugs: list[BaseException] = []
        self._came = asyncio.Condition()
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def url(self) -> str:
        """As Anthropic's SDK takes it."""
        return f"http://{self._host}:{self._port}"

    @property
    def openai_url(self) -> str:
        """As OpenAI's SDK takes it."""
        return self.url + "/v1"

    @property
    def config(self) -> Config:
        """For an `Agent` that asks this provider; its journal is gone when the provider is closed."""
        if self._home is None:
            self._home = TemporaryDirectory(prefix="tailrace-")
            faulty = f"{{dialect: chat, base_url: '{self.url}'}}"
            text = f"model: {{provider: faulty, name: ok}}\nproviders: {{faulty: {faulty}}}"
            (Path(self._home.name) / CONFIG_FILE).write_text(text, encoding="utf-8")
        return load({}, Path(self._home.name))

    @property
    def open_connections(self) -> int:
        return len(self._open)

    def extend(self, *items: str | Scenario | Reply) -> None:
        """More for the script. Raises `UnknownScenario`."""
        self._script += [_as_scenario(item) for item in items]

    @property
    def refusals(self) -> list[str]:
        """Why requests were refused, in order."""
        return [request.refusal for request in self.requests if request.refusal]

    async def request(self, number: int = 0) -> RecordedRequest:
        """The request of that number, counted from 0, as soon as it has come."""
        async with self._came:
            await self._came.wait_for(lambda: len(self.requests) > number)
        return self.requests[number]

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), self._host, self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
        if self._home is not None:
            self._home.cleanup()
        if error is None and self._bugs:
            raise ExceptionGroup(
                "the provider itself failed", [bug for bug in self._bugs if isinstance(bug, Exception)]
            )

    async def close(self) -> None:
        """Closes the port and every connection; a client that is being answered sees a cut."""
        if self._server is None:
            return
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in self._open:
            connection.abort()
        await self._empty.wait()
        await self._server.wait_closed()

    # the host of its connections

    def joined(self, connection: Connection, task: asyncio.Task[None]) -> int:
        """Takes the connection and its task into its care; returns the connection's number."""
        self._open.add(connection)
        self._empty.clear()
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        self.connections += 1
        return self.connections - 1

    def left(self, connection: Connection) -> None:
        self._open.discard(connection)
        if not self._open:
            self._empty.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (bug := task.exception()):
            self._bugs.append(bug)

    async def record(self, request: RecordedRequest) -> None:
        async with self._came:
            self.requests.append(request)
            self._came.notify_all()

    def model_names(self) -> list[str]:
        """Every word that can be a model's name alone."""
        return [*self.turns, *REPLIES]

    def refusal(self, _request: ScriptedRequest, _headers: Mapping[str, str], _counting: bool) -> Failure | None:
        """Why a vendor's API would not take the request; a subclass says so."""
        return None

    def signed(self, reply: Reply, _request: ScriptedRequest) -> Reply:
        """The reply as it leaves the provider."""
        return reply

    def conversation(self, request: ScriptedRequest) -> list[JsonObject]:
        """The messages or items of a request."""
        return _objects(request.body.get("input" if request.dialect == "responses" else "messages"))

    def step_of_turn(self, name: str, request: ScriptedRequest) -> Reply:
        """The first answer of the turn whose calls do not all have their result yet."""
        results = sum(map(_results, self.conversation(request)))
        for step in self.turns[name]:
            if results < len(step.calls) or not step.calls:
                return step
            results -= len(step.calls)
        return self.turns[name][-1]

    def choose(self, request: ScriptedRequest) -> Scenario:
        """What this request gets. Raises `UnknownScenario`."""
        if self._script:
            chosen_one = self._script.pop(0)
            if chosen_one.continues:
                return replace(chosen_one, reply=reply(rest_of(chosen_one.continues, request.body)))
            return chosen_one
        terms = request.model.split("+")
        turn = next((term for term in terms if term in self.turns), None)
        if turn is None:
            return scenario(request.model)
        terms.remove(turn)
        faults = scenario("+".join(terms)) if terms else Scenario()
        return replace(faults, name=request.model, reply=self.step_of_turn(turn, request))

    def choose_for_kept(self) -> Scenario:
        """How a response that is kept is delivered: the faults of the script's next item, else none."""
        return self._script.pop(0) if self._script else Scenario()


def rest_of(text: str, body: object) -> str:
    """What follows the longest beginning of `text` that the request holds: a model that goes on. A few letters are no
    beginning."""
    said = "\n".join(_strings(body))
    low, high = 0, len(text)
    while low < high:  # a beginning that is there contains every shorter one
        middle = (low + high + 1) // 2
        low, high = (middle, high) if text[:middle] in said else (low, middle - 1)
    return text[low:] if low >= SAID_BEFORE else text


def _strings(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from _strings(item)
        case dict():
            for item in value.values():
                yield from _strings(item)
        case _:
            return


def _results(message: JsonObject) -> int:
    """How many tool results this message or item is or holds."""
    if message.get("role") == "tool" or message.get("type") in _RESULTS:
        return 1
    return sum(map(_results, _objects(message.get("content"))))


def _objects(value: Any) -> list[JsonObject]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _as_scenario(item: str | Scenario | Reply) -> Scenario:
    if isinstance(item, Reply):
        return Scenario(reply=item)
    return item if isinstance(item, Scenario) else scenario(item)
