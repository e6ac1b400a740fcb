"""The documents are held to the code: what they show runs, what they link to is there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from provider_thread import provider
from tailrace.cli.commands.decode import DecodedAnswer
from tailrace.messages import Completion
from tailrace.testing.provider import call, reply

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
STREAM = (
    b'event: message_start\ndata: {"type":"message_start","message":{"role":"assistant","content":[],"usage":{}}}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
    b'"content_block":{"type":"text","text":""}}\n\n'
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
    b'"delta":{"type":"text_delta","text":"Hello!"}}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_within_the_project_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", document.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (document.parent / target).exists(), target


def test_the_architecture_names_rooms_that_are_there() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    paths = re.findall(r"`([a-z_0-9]+(?:/[a-z_0-9]+)*(?:/|\.py))`", page)
    assert len(paths) > 25
    for path in paths:
        assert (ROOT / "src/tailrace" / path).exists(), path


def python_in(document: str, holding: str) -> str:
    """The one Python block of a document with this in it."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), re.DOTALL)
    [code] = [block for block in blocks if holding in block]
    return str(code)


def test_the_readmes_python_decodes_a_stream(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"pieces": [STREAM[i : i + 7] for i in range(0, len(STREAM), 7)]}
    exec(python_in("README.md", "DIALECTS"), names)  # noqa: S102 - our own document
    assert isinstance(names["completion"], Completion)
    assert names["completion"].text == "Hello!"
    assert "TextDelta(text='Hello!'" in capsys.readouterr().out


def test_the_readmes_agent_calls_its_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with provider(reply(call("lookup", {"city": "Bergen"})), reply("Yes: rain.")) as server:
        text = f"providers: {{anthropic: {{base_url: '{server.url}', dialect: anthropic}}}}\n"
        (tmp_path / "config.yaml").write_text(text, encoding="utf-8")
        exec(python_in("README.md", "lookup"), {"__name__": "readme"})  # noqa: S102 - our own document
        assert server.requests[1].json()["messages"][-1]["content"][0]["content"] == "rain"
    assert capsys.readouterr().out == "Yes: rain."


def test_the_readmes_client_streams_from_the_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with provider(reply("Hello to you.")) as upstream:
        text = f"model: {{provider: f, name: ok}}\nproviders: {{f: {{base_url: '{upstream.url}', dialect: chat}}}}\n"
        (tmp_path / "config.yaml").write_text(text, encoding="utf-8")
        with served(tmp_path) as url:
            code = python_in("README.md", "OpenAI(").replace("http://127.0.0.1:8642", url)
            exec(code, {"__name__": "readme"})  # noqa: S102 - our own document
    assert capsys.readouterr().out == "Hello to you."


@contextmanager
def served(home: Path) -> Iterator[str]:
    """`tailrace serve` on a free port."""
    command = [sys.executable, "-m", "tailrace", "serve", "--port", "0"]
    environment = {**os.environ, "TAILRACE_HOME": str(home)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline().decode()
            yield re.search(r"http://\S+", line)[0]  # type: ignore[index]
        finally:
            process.terminate()


def test_the_readme_shows_the_output_of_decode_as_it_is() -> None:
    [line] = re.findall(r"^\{.*\}$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert list(json.loads(line)) == list(DecodedAnswer.__struct_fields__)


def test_the_readme_opens_with_the_two_commands() -> None:
    opening = (ROOT / "README.md").read_text(encoding="utf-8").split("```")[1]
    assert [line.split("#")[0].strip() for line in opening.strip().splitlines()] == ["make chat", "make test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"(?m)(?:`|^)make ([a-z]+)", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert f"\n{target}:" in makefile, target
