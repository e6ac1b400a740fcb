"""What the log and doctor say of a platform that cannot be reached."""

from __future__ import annotations

import socket
import ssl

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from tailrace.delivery.port import Failed
from tailrace.errors import PlatformError
from tailrace.gateway.connection_errors import no_connection, reply_without_answer
from tailrace.integrations.telegram.adapter import TelegramPlatform


async def test_a_refused_connection_is_told_with_its_address_and_no_words_of_a_library() -> None:
    with socket.socket() as closed:  # bound, and nobody listens: nobody else can get the port meanwhile
        closed.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{closed.getsockname()[1]}"
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientConnectorError) as refused:
                await session.get(f"http://{where}/")
        assert no_connection(refused.value) == f"no connection to {where}: connection refused"
        assert reply_without_answer(refused.value) == Failed(no_connection(refused.value))
        platform = TelegramPlatform("42:secret", base_url=f"http://{where}")
        with pytest.raises(PlatformError, match=f"no connection to http://{where}: ") as lost:
            await platform.check()
        await platform.close()
        assert "httpx" not in str(lost.value)


def test_a_time_out_is_told_in_words() -> None:
    assert no_connection(TimeoutError()) == "no connection: no answer in time"


def test_a_certificate_that_is_not_trusted_is_told_in_its_own_words() -> None:
    cause = ssl.SSLCertVerificationError(1, "certificate verify failed")
    cause.verify_message = "self-signed certificate"
    key = ConnectionKey("home.example.org", 8123, True, True, None, None, None)
    error = aiohttp.ClientConnectorCertificateError(key, cause)
    assert no_connection(error) == "no connection to home.example.org:8123: self-signed certificate"
