"""The embedded model as a provider: `LocalServer` keeps a llama.cpp server running, `HttpProvider` speaks to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from tailrace.errors import ProviderError, Rejected, Retryable, StreamCut
from tailrace.messages import Completion, Dialect, ModelRequest
from tailrace.ports import AnswerStream
from tailrace.providers.http.endpoint import NOTHING, Endpoint
from tailrace.providers.http.provider import HttpProvider
from tailrace.providers.local.server import MODEL_NAME, MODEL_PATH_KEY, Address, LocalServer
from tailrace.providers.transport.port import Transport

__all__ = ["MODEL_NAME", "Address", "LocalProvider", "LocalServer"]

# What llama.cpp says of a request that its model cannot answer, and what that means. It calls most of them failures of
# its own (500, 501), which clients would try again in vain.
CANNOT: Final[Mapping[str, str]] = {
    "image input is not supported": "takes no images",
    "audio input is not supported": "takes no sound",
    "unsupported content[].type": "takes no files",
}
TOO_LONG: Final = ", try increasing it"  # of a prompt that exceeds the context
DEATH_NOTICE_S: Final = 1.0  # a connection that broke: how long to wait for the news that the server died


class LocalProvider:
    """Satisfies `ports.Provider`. `server.start()` keeps the download and the loading out of the first call's
    deadlines."""

    def __init__(
        self,
        server: LocalServer,
        transport: Transport,
        *,
        dialect: Dialect = "chat",
        extra_body: Mapping[str, Any] = NOTHING,
    ) -> None:
        self.name = "local"
        self.dialect: Dialect = dialect
        self.is_local = True
        self._server = server
        self._transport = transport
        self._extra_body = extra_body

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnswerStream, None]:
        provider = await self._at_address(request.model)
        try:
            async with provider.stream(request) as answer:
                yield answer
        except ProviderError as exc:
            raise await self._explained(exc, request.model) from exc

    async def complete(self, request: ModelRequest) -> Completion:
        provider = await self._at_address(request.model)
        try:
            return await provider.complete(request)
        except ProviderError as exc:
            raise await self._explained(exc, request.model) from exc

    async def _at_address(self, model: str) -> HttpProvider:
        if not self._server.serves(model):
            raise Rejected(
                f"the embedded model is {MODEL_NAME}, not {model}: set {MODEL_PATH_KEY} for another GGUF",
                code="model_not_found",
                status=404,
                provider=self.name,
            )
        address = await self._server.start()
        endpoint = Endpoint(
            name=self.name,
            dialect=self.dialect,
            base_url=address.base_url,
            key=address.key,
            socket_path=str(address.uds),
            extra_body=self._extra_body,
            quirks=("prefill",),
        )
        return HttpProvider(endpoint, self._transport)

    async def _explained(self, exc: ProviderError, model: str) -> ProviderError:
        """The same kind of failure, with the cause where the server died of it; or that the model cannot do this."""
        for words, what in CANNOT.items():
            if words in str(exc):
                message = f"{self.name}/{model} {what}: it reads and writes text alone; name another model"
                return Rejected(message, code="unsupported_by_model", status=400, provider=self.name)
        if TOO_LONG in str(exc):  # a client cannot increase it
            message = str(exc).replace(TOO_LONG, ": ask for less, or name a model that reads more")
            return Rejected(message, code=exc.code, status=exc.status, provider=self.name)
        if exc.status is not None or not isinstance(exc, Retryable):  # it lives to tell
            return exc
        obituary = await self._server.died(within_s=DEATH_NOTICE_S)
        if obituary is None or not isinstance(exc, StreamCut):
            return obituary or exc
        cut = StreamCut(str(obituary), code=exc.code, provider=self.name)
        for note in getattr(obituary, "__notes__", ()):
            cut.add_note(note)
        return cut
