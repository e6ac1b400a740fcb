"""Errors that are found after the config was loaded name the line of the file that they are about."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tailrace.app.models import not_embedded
from tailrace.config.error_place import with_place
from tailrace.config.load import load
from tailrace.errors import ConfigError

CONFIG = """\
model:
  provider: antropic
  name: gpt-5
  fallbacks:
    - {provider: openai, name: y}
    - name: z
      provider: locl
providers:
  mine.2:
    dialect: chat
server:
  host: 0.0.0.0
  aliases: {fast: opnai/gpt-5}
  keys:
    - {name: a, key_env: A}
    - key_env: A
      name: a
store: {url: "memory://"}
"""


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("server.host", 12),
        ("store.url", 18),
        ("server.keys[1].name", 17),
        ("server.keys", 14),
        ("providers.antropic", 2),  # where it is used: it stands nowhere else
        ("providers.locl", 7),
        ("providers.opnai", 13),
        ("providers.mine.2.base_url", 9),  # the section that lacks it
        ("providers.mine.2: x-title", 9),
        ("server.port", 11),
        ("server.keys[1].scopes", 16),
    ],
)
def test_the_line_of_the_key_is_named(tmp_path: Path, key: str, line: int) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG, encoding="utf-8")
    placed = with_place(ConfigError("is wrong", key=key), load({}, tmp_path))
    assert str(placed) == f"{file}:{line}: {key}: is wrong"
    assert (placed.message, placed.key) == ("is wrong", key)


@pytest.mark.parametrize(
    "problem",
    [
        ConfigError("no such provider", key="providers.nobody"),  # a client has named it
        ConfigError("OPENAI_API_KEY is not set in the environment", key="providers.openai.key_env"),
        ConfigError("the embedded model has another name", key="model", refused="gpt-5"),  # nor is it configured
        ConfigError("expected true or false", key="TAILRACE_YOLO_MODE"),
        ConfigError("is missing", key="blocks[0].name", file="flow.yaml", line=3),
        ConfigError("this system has no fork"),
    ],
    ids=lambda problem: problem.key,
)
def test_what_is_not_in_the_file_stays_as_it_is(tmp_path: Path, problem: ConfigError) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG, encoding="utf-8")
    assert with_place(problem, load({}, tmp_path)) is problem


@pytest.mark.parametrize("name", ["openai/gpt-5", "opnai/gpt-5", "gpt-5"])
def test_the_configured_name_is_found_whatever_is_wrong_with_it(tmp_path: Path, name: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"agent: {{}}\nmodel:\n  name: {name}\n", encoding="utf-8")
    config = load({}, tmp_path)
    problem = not_embedded(config, name)
    assert str(with_place(problem, config)) == f"{file}:3: {problem}"
    for asked in ("openrouter/gpt-6", "noone/gpt-6", "gpt-6"):
        assert not with_place(not_embedded(config, asked), config).line


def test_a_name_that_is_not_there_is_not_the_refused_one(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text('model:\n  name: ""\n', encoding="utf-8")
    asked = ConfigError("'openai/' has no model after the slash", key="model")
    assert with_place(asked, load({}, tmp_path)) is asked


@pytest.mark.timeout(20)  # a pipe that nobody writes into would be waited for without an end
def test_a_pipe_is_not_read_again(tmp_path: Path) -> None:
    config = load({}, tmp_path)
    os.mkfifo(tmp_path / "config.yaml")
    problem = ConfigError("is wrong", key="server.host")
    assert with_place(problem, config) is problem


@pytest.mark.parametrize("now", [None, b"", b"a: [", b"\xff", b"- 1\n- 2", b"{[a]: b}", b"[" * 3000])
def test_a_file_that_was_changed_since_is_not_stumbled_over(tmp_path: Path, now: bytes | None) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG, encoding="utf-8")
    config = load({}, tmp_path)
    if now is None:
        file.unlink()
    else:
        file.write_bytes(now)
    problem = ConfigError("is wrong", key="server.host")
    assert with_place(problem, config) is problem
