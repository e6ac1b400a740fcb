"""What `/about` tells of the model, the directory and the tools."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest

from server.http_server import running_server
from tailrace import __version__
from tailrace.app import open_app
from tailrace.config.load import load
from tailrace.server.app import serving


async def test_about_names_the_model_the_directory_and_the_tools(tmp_path: Path) -> None:
    async with running_server(tmp_path, config="agent: {tools: [read_file, patch]}\n") as server:
        status, told = await server.json("GET", "/about")
    assert status == 200
    assert told == {
        "version": __version__,
        "model": "faulty/ok",
        "embedded": False,
        "directory": str(tmp_path),
        "tools": ["patch", "read_file"],
        "max_body_bytes": 32_000_000,
    }
    assert server.provider.requests == [], "it calls no provider"


@pytest.mark.parametrize(("settings", "embedded"), [("", True), ("  local: {model_path: some.gguf}\n", False)])
async def test_about_says_that_the_model_is_the_embedded_one_which_has_no_tools(
    tmp_path: Path, settings: str, embedded: bool
) -> None:
    text = f"model: {{provider: local, name: smollm2-135m}}\nproviders:\n  other: {{dialect: chat}}\n{settings}"
    (tmp_path / "config.yaml").write_text(text + "store: {url: 'memory://'}\n", encoding="utf-8")
    async with (
        open_app(load({}, tmp_path), directory=tmp_path) as app,
        serving(app, port=0) as server,
        aiohttp.ClientSession() as client,
        client.get(server.url + "/about") as response,
    ):
        told = await response.json()
    assert (told["model"], told["embedded"], told["tools"]) == ("local/smollm2-135m", embedded, [])
