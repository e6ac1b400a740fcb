"""The defaults of an adapter.

Subclass `BasePlatform`, give it a `name`, `capabilities`, `perform` and `run`, and a function
`make(config: Config) -> Platform` beside it; `tailrace.gateway.registry` says where both belong.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

from aiohttp import ClientResponse, ClientResponseError, InvalidURL

from tailrace.delivery import port
from tailrace.errors import PlatformError
from tailrace.gateway.connection_errors import NO_ANSWER

UPLOAD_S = 120.0  # the deadline of a request that carries a file
ANSWER_S = 20.0  # the deadline of one request; past it, whether the request was carried out is unknown


class BasePlatform:
    """The defaults of `Platform`: it sends nothing, and receives by its webhook alone."""

    name = ""
    hook_path = ""
    stops_when_refused = False
    same_everywhere = port.Capabilities()  # one whole message after the other: what any platform can do

    def capabilities(self, _place: port.Place) -> port.Capabilities:
        return self.same_everywhere

    async def perform(self, place: port.Place, action: port.AnyAction) -> port.AnyReply:
        return port.Refused(f"{self.name} cannot {type(action).__name__.lower()} to {place.key}")

    async def run(self, inbox: port.Inbox) -> None:
        """There is nothing to connect to: the platform calls `hook_path`."""
        inbox.connected()
        await asyncio.Event().wait()

    async def fetch(self, attachment: port.Attachment, *, max_bytes: int) -> bytes:  # noqa: ARG002 - the port's name
        raise PlatformError(f"files are not supported: {attachment.name}", platform=self.name)

    async def quoted(self, _message: port.MessageReceived, *, in_conversation: bool) -> tuple[port.Quoted, ...]:  # noqa: ARG002
        """Every update has it."""
        return ()

    async def display_name(self, sender: port.Sender) -> str:
        """Every update has it."""
        return sender.name

    async def hook(self, _request: port.HookRequest, _inbox: port.Inbox) -> port.HookAnswer:
        return port.HookAnswer(404)

    async def check(self) -> str:
        return "configured"

    async def close(self) -> None:
        """There is nothing to release."""

    async def download(
        self, attachment: port.Attachment, request: AbstractAsyncContextManager[ClientResponse], max_bytes: int
    ) -> bytes:
        """The content that the request is answered with. No more than `max_bytes` are read. Raises `PlatformError`."""
        content = bytearray()
        try:
            async with request as response:
                if response.status != 200:
                    reason = f"could not be fetched: {self.name} answered {response.status}"
                    raise PlatformError(f"{attachment.name} {reason}", platform=self.name)
                if (response.content_length or 0) > max_bytes:
                    raise self.too_large(attachment, max_bytes)
                async for piece in response.content.iter_chunked(65536):
                    content += piece
                    if len(content) > max_bytes:
                        raise self.too_large(attachment, max_bytes)
        except NO_ANSWER as exc:
            secret = isinstance(exc, InvalidURL | ClientResponseError)  # an address may have the token in it
            reason = type(exc).__name__ if secret else str(exc) or type(exc).__name__
            raise PlatformError(f"{attachment.name} could not be fetched: {reason}", platform=self.name) from exc
        return bytes(content)

    def too_large(self, attachment: port.Attachment, max_bytes: int) -> PlatformError:
        return PlatformError(f"{attachment.name} is larger than {max_bytes} bytes", platform=self.name)

    def check_size(self, attachment: port.Attachment, max_bytes: int) -> None:
        """Raises `PlatformError` for a file that the platform itself says is too large."""
        if (attachment.size_bytes or 0) > max_bytes:
            raise self.too_large(attachment, max_bytes)
