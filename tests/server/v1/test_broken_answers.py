"""An error in mid-stream, asked whole: one rule for every API."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.dialect_api import DIALECTS
from server.v1.replaying_provider import chat_chunks, replaying

REFUSED = chat_chunks("One, ", error={"code": "content_policy_violation", "message": "not this"})
OVERLOADED = chat_chunks("One, ", error={"code": "overloaded_error", "message": "too busy"})


@pytest.mark.parametrize(("raw", "expected"), [(REFUSED, 400), (OVERLOADED, 502)], ids=["refused", "overloaded"])
async def test_an_error_in_mid_stream_has_one_status_in_every_api(tmp_path: Path, raw: bytes, expected: int) -> None:
    """By its class: the provider's own status for what will fail again, 502 for what may not."""
    async with replaying(tmp_path, raw) as server:
        statuses: dict[str, int] = {dialect: (await server.whole(dialect, "chat"))[0] for dialect in DIALECTS}
        statuses["stored"] = (await server.whole("responses", "chat", store=True))[0]
        agent, _ = await server.whole("chat", model="tailrace")
    assert set(statuses.values()) == {expected}, statuses
    assert agent == (400 if expected == 400 else 200)  # a cut turn keeps its text
