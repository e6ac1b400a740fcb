"""What every adapter does unless it says otherwise: an adapter that does nothing special behaves right.

Subclass `BasePlatform`, give it a `name`, `capabilities`, `perform` and `run`, and a function
`make(config: Config) -> Platform` beside it; `tailrace.platforms.runtime.registry` names the module.
"""

from __future__ import annotations

import asyncio

from tailrace.delivery.port import (
    AnyAction,
    AnyReply,
    Attachment,
    Capabilities,
    HookAnswer,
    HookRequest,
    Inbox,
    Place,
    Refused,
)
from tailrace.errors import PlatformError


class BasePlatform:
    """The defaults of `Platform`: it sends nothing, and receives by its webhook alone."""

    name = ""
    hook_path = ""

    def capabilities(self, place: Place) -> Capabilities:
        """One whole message after the other: what any platform can do."""
        del place
        return Capabilities()

    async def perform(self, place: Place, action: AnyAction) -> AnyReply:
        return Refused(f"{self.name} cannot {type(action).__name__.lower()} to {place.key}")

    async def run(self, inbox: Inbox) -> None:
        """Nothing to connect to: whoever calls `hook_path` is the connection."""
        inbox.connected()
        await asyncio.Event().wait()

    async def fetch(self, attachment: Attachment, *, max_bytes: int) -> bytes:
        del max_bytes
        raise PlatformError(f"files are not supported: {attachment.name}", platform=self.name)

    async def hook(self, request: HookRequest, inbox: Inbox) -> HookAnswer:
        del request, inbox
        return HookAnswer(404)

    async def check(self) -> str:
        return "configured"

    async def close(self) -> None:
        """Nothing to let go of."""
