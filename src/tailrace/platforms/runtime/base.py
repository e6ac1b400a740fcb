"""The defaults of an adapter.

Subclass `BasePlatform`, give it a `name`, `capabilities`, `perform` and `run`, and a function
`make(config: Config) -> Platform` beside it; `tailrace.platforms.runtime.registry` says where both belong.
"""

from __future__ import annotations

import asyncio

from tailrace.delivery import port
from tailrace.errors import PlatformError

ANSWER_S = 20.0  # the deadline of one request; past it, whether the request was carried out is unknown


class BasePlatform:
    """The defaults of `Platform`: it sends nothing, and receives by its webhook alone."""

    name = ""
    hook_path = ""

    def capabilities(self, _place: port.Place) -> port.Capabilities:
        """One whole message after the other: what any platform can do."""
        return port.Capabilities()

    async def perform(self, place: port.Place, action: port.AnyAction) -> port.AnyReply:
        return port.Refused(f"{self.name} cannot {type(action).__name__.lower()} to {place.key}")

    async def run(self, inbox: port.Inbox) -> None:
        """There is nothing to connect to: the platform calls `hook_path`."""
        inbox.connected()
        await asyncio.Event().wait()

    async def fetch(self, attachment: port.Attachment, *, max_bytes: int) -> bytes:  # noqa: ARG002 - the port's name
        raise PlatformError(f"files are not supported: {attachment.name}", platform=self.name)

    async def hook(self, _request: port.HookRequest, _inbox: port.Inbox) -> port.HookAnswer:
        return port.HookAnswer(404)

    async def check(self) -> str:
        return "configured"

    async def close(self) -> None:
        """There is nothing to release."""

    def too_large(self, attachment: port.Attachment, max_bytes: int) -> PlatformError:
        return PlatformError(f"{attachment.name} is larger than {max_bytes} bytes", platform=self.name)

    def check_size(self, attachment: port.Attachment, max_bytes: int) -> None:
        """Raises `PlatformError` for a file that the platform itself says is too large."""
        if (attachment.size_bytes or 0) > max_bytes:
            raise self.too_large(attachment, max_bytes)
