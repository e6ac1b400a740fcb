"""The first text of a committed run waits for one commit, and the provider's request for none."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.dialect_api import dialect_server
from tailrace.events import MessageChunk
from tailrace.journal.stored import journal as stored_journal

CHAT = "/v1/chat/completions"
TURN = {"model": "tailrace", "stream": True, "messages": [{"role": "user", "content": "Go."}]}
RESPONSE = {"stream": True, "store": True, "input": "Go."}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, TURN),
        ("/v1/responses", RESPONSE | {"model": "up-chat/ok"}),
        ("/v1/responses", RESPONSE | {"model": "up-anthropic/ok"}),
        ("/v1/responses", RESPONSE | {"model": "up-responses/ok"}),
        ("/v1/responses", RESPONSE | {"model": "tailrace"}),
    ],
)
async def test_the_first_text_is_in_the_commit_that_creates_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, object]
) -> None:
    """Were the provider asked after a commit, the run would have one of its own first."""
    monkeypatch.setattr(stored_journal, "BEGIN_S", 3600.0)
    async with dialect_server(tmp_path) as server:
        await server.events(path, body)
        (run,) = await server.app.journal.runs()
        entries = await server.app.journal.read(run.id)
        times = await server.app.journal.times(run.id)
    assert run.state == "completed"
    text = next(entry.seq for entry in entries if entry.event.__class__ is MessageChunk)
    assert [seq for seq, _ in times if seq <= text] == [1]
