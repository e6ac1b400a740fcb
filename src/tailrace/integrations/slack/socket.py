"""One connection in Slack's Socket Mode, to its end.

The SDK keeps it alive and notices its end. It does not replace it: it would try for ever and say nothing, while the
gateway logs each failure, waits longer after each, and reports that the platform is not connected.
"""

from __future__ import annotations

import asyncio
import logging
import re
import traceback
from urllib.parse import urlsplit

from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

PING_S = 5.0  # between checks that the socket is alive
SHORT_LIVED_S = 10.0  # a socket that Slack wants replaced before this age is a failure: the next one has to wait
_TICKET = re.compile(
    r"""(?<=ticket=)[^&\s'"]+|(?<="response_url":")[^"]+|(?<="response_url":\s")[^"]+|(?<='response_url':\s')[^']+"""
)


def hide_tickets_in_logs() -> None:
    for library in ("slack_sdk.socket_mode.aiohttp", "slack_sdk.web.async_base_client"):
        logging.getLogger(library).addFilter(_hide_ticket)


def _hide_ticket(record: logging.LogRecord) -> bool:
    """The ticket opens the app's connection. It is part of the address, which the SDK logs, and which aiohttp names in
    its errors (J114). A traceback with the ticket is left out: the line says the same. The `response_url`
    of a command lets its holder write in the channel for half an hour."""
    record.msg, record.args = _TICKET.sub("…", record.getMessage()), ()
    if record.exc_info and _TICKET.search("".join(traceback.format_exception(*record.exc_info))):
        record.exc_info = record.exc_text = None
    return True


class OneSocket(SocketModeClient):
    """Envelopes in their order, until the connection ends. Use within a running loop, and `finish` it."""

    def __init__(self, app_token: str, web: AsyncWebClient) -> None:
        super().__init__(app_token, web_client=web, ping_interval=PING_S)
        self._waiting: asyncio.Queue[SocketModeRequest | None] = asyncio.Queue()
        self._unconfirmed: set[str] = set()
        self.is_replaced = False  # Slack asks for another connection: it does every few hours
        self._opened_at = 0.0
        self.socket_mode_request_listeners.append(self._keep)

    async def open(self, timeout_s: float) -> None:
        """Raises what the SDK and aiohttp raise."""
        self.wss_uri = await self.issue_new_wss_url()
        try:
            async with asyncio.timeout(timeout_s):
                await self.connect()  # type: ignore[no-untyped-call] # the SDK does not say
        except TimeoutError:
            raise TimeoutError(f"{urlsplit(self.wss_uri).netloc} does not answer") from None
        self._opened_at = asyncio.get_running_loop().time()

    @property
    def is_short_lived(self) -> bool:
        return asyncio.get_running_loop().time() - self._opened_at < SHORT_LIVED_S

    async def next_envelope(self) -> SocketModeRequest | None:
        """None once the connection has ended."""
        return await self._waiting.get()

    async def confirm(self, envelope: SocketModeRequest) -> None:
        """Once; a second time is a no-op. Slack delivers again what is not confirmed. Raises what aiohttp raises."""
        if envelope.envelope_id not in self._unconfirmed:
            return
        self._unconfirmed.discard(envelope.envelope_id)
        await self.send_socket_mode_response(SocketModeResponse(envelope.envelope_id))

    async def finish(self) -> None:
        """The SDK cancels its tasks and leaves them; here they are seen to their end."""
        tasks = (self.message_processor, self.current_session_monitor, self.message_receiver)
        await self.close()  # type: ignore[no-untyped-call] # the SDK does not say
        await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)

    async def connect_to_new_endpoint(self, force: bool = False) -> None:
        """What the SDK calls when the connection has ended, or, with `force`, when Slack asks for another one."""
        self.is_replaced = self.is_replaced or force
        self._waiting.put_nowait(None)

    async def _keep(self, _: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        self._unconfirmed.add(request.envelope_id)
        self._waiting.put_nowait(request)
