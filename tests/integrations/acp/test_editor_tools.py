"""Files in the editor's hands: unsaved buffers, and changes that it can undo."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from integrations.acp.acp_editor import AgentProcess, model_calls, tailrace_acp, write_config
from tailrace.testing.provider import FaultyProvider, call, reply

pytestmark = pytest.mark.asyncio(loop_scope="module")
KEY = "sk-of-the-provider-1234567890"
TURNS = {
    "reads": [reply(call("read_file", {"path": "notes.txt"}), call("read_file", {"path": "disk.txt"})), reply("Read.")],
    "patches": [reply(call("patch", {"path": "notes.txt", "old": "unsaved", "new": "saved"})), reply("Patched.")],
    "writes": [reply(call("write_file", {"path": "deep/new.txt", "content": "fresh\n"})), reply("Written.")],
    "leaves": [reply(call("write_file", {"path": "../out.txt", "content": "x"})), reply("No.")],
    "links": [reply(call("read_file", {"path": "link.txt"})), reply("No.")],
}


class Room(NamedTuple):
    agent: AgentProcess
    provider: FaultyProvider
    directory: Path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def room(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Room]:
    base = tmp_path_factory.mktemp("tools")
    real, directory = base / "real", base / "project"
    real.mkdir()
    directory.symlink_to(real)  # as the editor has opened it
    (real / "notes.txt").write_text("on the disk\n", encoding="utf-8")
    (real / "disk.txt").write_text("only here\n", encoding="utf-8")
    (base / "outside.txt").write_text("secret\n", encoding="utf-8")
    (real / "link.txt").symlink_to(base / "outside.txt")
    async with FaultyProvider(turns=TURNS) as provider:
        providers = {"test": {"dialect": "chat", "base_url": provider.openai_url, "key_env": "TEST_KEY"}}
        write_config(base / "home", provider.openai_url, providers=providers)
        variables = {"TEST_KEY": KEY}
        async with tailrace_acp(base / "home", directory, files=True, variables=variables) as agent:
            agent.editor.buffers[str(directory / "notes.txt")] = "unsaved\n"
            agent.editor.buffers[str(base / "outside.txt")] = "secret\n"
            yield Room(agent, provider, directory)


def results(room: Room) -> list[str]:
    return [m["content"] for m in model_calls(room.provider)[-1].json()["messages"] if m["role"] == "tool"]


async def test_an_unsaved_buffer_is_read_and_the_disk_where_there_is_none(room: Room) -> None:
    session = await room.agent.session("reads")
    await room.agent.prompt(session)
    assert results(room) == ["     1\tunsaved", "     1\tonly here"]


async def test_a_patch_is_made_in_the_buffer(room: Room) -> None:
    session = await room.agent.session("patches")
    await room.agent.prompt(session)
    assert room.agent.editor.written[str(room.directory / "notes.txt")] == "saved\n"
    assert (room.directory / "notes.txt").read_text(encoding="utf-8") == "on the disk\n"  # the editor saves it
    assert "+saved" in results(room)[0]


async def test_a_file_is_written_by_the_editor_with_its_directories(room: Room) -> None:
    session = await room.agent.session("writes")
    await room.agent.prompt(session)
    assert room.agent.editor.written[str(room.directory / "deep/new.txt")] == "fresh\n"
    assert (room.directory / "deep").is_dir()
    assert results(room) == ["Created deep/new.txt (1 line)"]


@pytest.mark.parametrize("model", ["leaves", "links"])
async def test_the_editor_is_not_asked_for_what_lies_outside(room: Room, model: str) -> None:
    already = dict(room.agent.editor.written)
    session = await room.agent.session(model)
    await room.agent.prompt(session)
    assert "outside the working directory" in results(room)[0]
    assert room.agent.editor.written == already


async def test_a_key_in_a_question_is_not_kept_in_the_title(room: Room) -> None:
    session = await room.agent.session("ok")
    await room.agent.prompt(session, f"Is {KEY} my key?")
    (told,) = room.agent.editor.of("session_info_update", session)
    listed = (await room.agent.agent.list_sessions()).sessions
    (kept,) = [one.title for one in listed if one.session_id == session]
    assert told["title"] == kept
    assert KEY not in kept
