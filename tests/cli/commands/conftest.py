"""What several of these tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tailrace.testing.provider import FaultyProvider


@pytest.fixture
async def server() -> AsyncIterator[FaultyProvider]:
    async with FaultyProvider() as provider:
        yield provider
