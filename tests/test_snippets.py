"""Every snippet of the README and the documents runs as it stands: programs run, configs load, commands are known.

Hosted providers are stood in for by a provider on loopback, which the config of the reader's home names.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from provider_thread import provider
from tailrace.cli.main import all_commands, near_command, parser_of
from tailrace.config.section_parser import parse_section
from tailrace.config.sections import Sections
from tailrace.testing.provider import call, reply

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^([ \t]*)```([a-z]*)\n(.*?)^[ \t]*```", re.MULTILINE | re.DOTALL)
CONFIG = """
model: {{provider: fake, name: ok}}
providers:
  fake: {{dialect: chat, base_url: "{url}"}}
  anthropic: {{dialect: anthropic, base_url: "{url}"}}
  openrouter: {{dialect: chat, base_url: "{url}"}}
"""
# By a word in them: these have tests of their own, or need what a machine may not have.
ELSEWHERE = {
    "docs/testing.md": "tests/testing/test_docs_examples.py",
    "docs/testing-tools.md": "tests/testing/test_docs_examples.py",
    "docs/tutorials/openai-client.md": "tests/test_tutorials.py",
}
# YAML that is not our config, by the document and a word in it.
OTHER_YAML = {
    "docs/sequences.md": "blocks:",
    "docs/tutorials/durable-steps.md": "blocks:",
    "docs/integrations/slack.md": "display_information:",
    "docs/integrations/homeassistant.md": "automation",
}


class Snippet(NamedTuple):
    document: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


def snippets(*languages: str) -> list[Snippet]:
    found = []
    for path in DOCUMENTS:
        page = path.read_text(encoding="utf-8")
        for match in FENCED.finditer(page):
            text = re.sub(rf"(?m)^{match[1]}", "", match[3])
            line = page.count("\n", 0, match.start()) + 1
            found.append(Snippet(str(path.relative_to(ROOT)), line, match[2], text))
    return [snippet for snippet in found if snippet.language in languages]


# ── programs ─────────────────────────────────────────────────────────────────────────────────────────────────

PROGRAMS = [snippet for snippet in snippets("python") if snippet.document not in ELSEWHERE]
ADVICE = reply('{"umbrella": true, "reason": "It rains."}')
TOOL_TURN = [reply(call("lookup", {"city": "Bergen"})), ADVICE]


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Someone in an empty directory, with a config that names a provider on loopback."""
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path))
    monkeypatch.setenv("WORK_KEY", "a-key")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("snippet", PROGRAMS, ids=str)
def test_a_program_runs_as_it_stands(
    snippet: Snippet, reader: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in re.findall(r"^(?:from|import) (dbos|temporalio)", snippet.text, re.MULTILINE):
        pytest.importorskip(package)
    code = snippet.text
    with provider(*(TOOL_TURN if "lookup" in code else [reply("Hello."), reply("Water.")])) as upstream:
        (reader / "config.yaml").write_text(CONFIG.format(url=upstream.url), encoding="utf-8")
        monkeypatch.setenv("WORK_URL", upstream.url)
        if "127.0.0.1:8642" in code:
            with served(reader) as url:
                exec(code.replace("http://127.0.0.1:8642", url), {"__name__": "__main__"})  # noqa: S102 - ours
        else:
            exec(code, {"__name__": "__main__"})  # noqa: S102 - our own document
        if "lookup" in code:
            assert upstream.requests[1].json()["messages"][-1]["content"][0]["content"] == "rain"
    if "print(" in code and "def approve" not in code:
        assert capsys.readouterr().out.strip(), "it shows something"


@contextmanager
def served(home: Path) -> Iterator[str]:
    """`tailrace serve` on a free port."""
    command = [sys.executable, "-m", "tailrace", "serve", "--port", "0"]
    environment = {**os.environ, "TAILRACE_HOME": str(home)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().decode().split()[-1]
        finally:
            process.terminate()


# ── configs ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("snippet", snippets("yaml"), ids=str)
def test_a_config_loads_as_it_stands(snippet: Snippet) -> None:
    if (word := OTHER_YAML.get(snippet.document)) is not None and word in snippet.text:
        assert yaml.safe_load(snippet.text)
        return
    parse_section(snippet.text, Sections, str(snippet))


@pytest.mark.parametrize("snippet", snippets("json"), ids=str)
def test_json_is_json(snippet: Snippet) -> None:
    for value in re.split(r"\n(?=\{)", snippet.text.strip()):
        json.loads(value)


# ── commands ─────────────────────────────────────────────────────────────────────────────────────────────────


def commands() -> list[tuple[str, list[str]]]:
    """Every `tailrace …` and `make …` that a reader is shown, by its place."""
    found = []
    for snippet in snippets("", "sh", "console"):
        for line in snippet.text.splitlines():
            typed = line.removeprefix("$ ").strip()
            if snippet.language == "console" and not line.startswith("$ "):
                continue
            typed = re.sub(r"^(?:[A-Z_]+=\S+\s+)+", "", re.split(r"\s+#\s|\s{3,}| &$", typed)[0])
            if re.match(r"(tailrace|make) [a-z\"-]", typed) and not re.search(r"[|<>…\[]", typed):
                found.append((str(snippet), shlex.split(typed)))
    return found


def test_every_command_is_known_with_its_options() -> None:
    shown = commands()
    assert len(shown) > 20
    for place, words in shown:
        check_command(place, words)


def check_command(place: str, words: list[str]) -> None:
    program, *rest = words
    if program == "make":
        targets = re.findall(r"(?m)^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"))
        assert {word for word in rest if "=" not in word} <= set(targets), place
    elif rest[0] in all_commands():
        parser = parser_of(rest[0])
        parse = parser.parse_intermixed_args if all_commands()[rest[0]].mixed else parser.parse_args
        parse([word if word not in ("RUN", "FILE", "ID", "NAME") else "x" for word in rest[1:]])
    else:
        assert rest[0].startswith("-") or near_command(rest[0]) is None, place
