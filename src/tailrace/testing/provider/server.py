"""The provider that misbehaves on request, over a real socket: its port, its script and its log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

from msgspec.structs import replace

from tailrace.testing.provider.connection import Connection, RecordedRequest
from tailrace.testing.provider.kept import KeptResponses
from tailrace.testing.provider.names import scenario
from tailrace.testing.provider.replies import REPLIES
from tailrace.testing.provider.scenario import Scenario
from tailrace.testing.provider.strict import Strict, VendorApi
from tailrace.testing.provider.turns import AgenticTurns
from tailrace.testing.scripted.failures import Failure
from tailrace.testing.scripted.reply import Reply, reply
from tailrace.testing.scripted.request_reader import ScriptedRequest

SAID_BEFORE = 12  # characters of a text by which it is known again


class FaultyProvider:
    """An endpoint of all three dialects that answers as request, and keeps a log of who asked.

    Each request takes the next item of `script`; when none is left, the request's model names one of `turns` or a
    scenario. With `strict`, it refuses first what the vendors' APIs refuse, and signs what it says as they do.
    Responses that were asked for with `background` and `store` are kept: a GET for one takes the faults of the next
    item.

        async with FaultyProvider(script=["status-529", "ok"]) as server:
            client = AsyncOpenAI(base_url=server.openai_url, api_key="any")
    """

    def __init__(
        self,
        script: Iterable[str | Scenario | Reply] = (),
        *,
        turns: Mapping[str, Sequence[Reply]] | None = None,
        strict: Strict | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        """Raises `UnknownScenario` for a name in the script that is none."""
        self.requests: list[RecordedRequest] = []
        self.connections = 0  # ever accepted
        self.kept = KeptResponses()
        self.flowing = asyncio.Event()  # clear it, and each answer waits before its next piece until it is set again
        self.flowing.set()
        self._script = [_as_scenario(item) for item in script]
        self._turns = AgenticTurns(turns or {})
        self._api = VendorApi(strict)
        self._host, self._port = host, port
        self._server: asyncio.Server | None = None
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
    def open_connections(self) -> int:
        return len(self._open)

    def extend(self, *items: str | Scenario | Reply) -> None:
        """More for the script. Raises `UnknownScenario`."""
        self._script += [_as_scenario(item) for item in items]

    @property
    def refusals(self) -> list[str]:
        """Why requests were refused, in order; empty where all were as the vendors' APIs want them."""
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
        return [*self._turns.names, *REPLIES]

    def refusal(self, request: ScriptedRequest, headers: Mapping[str, str], *, counting: bool) -> Failure | None:
        return self._api.refusal(request, headers, counting=counting)

    def signed(self, reply: Reply, request: ScriptedRequest) -> Reply:
        return self._api.signed(reply, request)

    def choose(self, request: ScriptedRequest) -> Scenario:
        """What this request gets. Raises `UnknownScenario`."""
        if self._script:
            chosen_one = self._script.pop(0)
            if chosen_one.continues:
                return replace(chosen_one, reply=reply(rest_of(chosen_one.continues, request.body)))
            return chosen_one
        terms = request.model.split("+")
        turn = next((term for term in terms if term in self._turns.names), None)
        if turn is None:
            return scenario(request.model)
        terms.remove(turn)
        faults = scenario("+".join(terms)) if terms else Scenario()
        chosen = self._turns.reply(turn, request, self._api.conversation(request))
        return replace(faults, name=request.model, reply=chosen)

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


def _as_scenario(item: str | Scenario | Reply) -> Scenario:
    if isinstance(item, Reply):
        return Scenario(reply=item)
    return item if isinstance(item, Scenario) else scenario(item)
