"""The fakes of platforms as servers: each listens where it was told to."""

from __future__ import annotations

import socket

import pytest
from proof.platforms.discord import FakeDiscord
from proof.platforms.homeassistant import FakeHomeAssistant
from proof.platforms.slack import FakeSlack
from proof.platforms.telegram import FakeTelegram
from proof.platforms.whatsapp import FakeWhatsApp

from tailrace.testing.platforms.loopback import LoopbackFake


@pytest.mark.parametrize("fake", [FakeDiscord, FakeHomeAssistant, FakeSlack, FakeTelegram, FakeWhatsApp])
async def test_a_port_that_is_named_is_the_one_that_is_used(fake: type[LoopbackFake]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    async with fake(port=port) as server:
        assert server.url == f"http://127.0.0.1:{port}"
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass
