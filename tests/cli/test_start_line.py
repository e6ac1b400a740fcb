"""The log's first line says what a server was started with, and no secret."""

from __future__ import annotations

from pathlib import Path

from tailrace.cli.start_line import key_line, model_problems, start_line
from tailrace.config.load import load

CONFIG = """
model: {provider: openai, name: gpt-5, fallbacks: [{provider: anthropic, name: claude-sonnet-4-5}]}
store: {url: "postgresql://ann:hunter2@db:5432/runs"}
bus: {url: "redis://:hunter3@redis:6379/0"}
server: {keys: [{name: ci, key_env: CI_KEY, scopes: [runs]}]}
"""


def test_without_a_config_the_defaults_are_said(tmp_path: Path) -> None:
    config = load({}, tmp_path)
    assert start_line(config, []) == (
        f"config none at {tmp_path}/config.yaml; store {tmp_path}/tailrace.db; bus none;"
        " model local/smollm2-135m; platforms: none"
    )
    assert key_line(config) == "no key is required"


def test_J114_all_that_a_server_uses_is_said_and_no_secret(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "env").write_text("CI_KEY=hunter4\n", encoding="utf-8")
    (tmp_path / "env").chmod(0o600)
    config = load({"TAILRACE_API_KEY": "hunter5"}, tmp_path)
    said = f"{start_line(config, ['telegram', 'slack'])}; {key_line(config)}"
    assert said == (
        f"config {tmp_path}/config.yaml; variables also from {tmp_path}/env; store postgresql://…@db:5432/runs;"
        " bus redis://…@redis:6379/0; model openai/gpt-5, then anthropic/claude-sonnet-4-5; platforms: telegram, slack;"
        " a key is required: TAILRACE_API_KEY, ci"
    )
    assert "hunter" not in said


def test_a_model_that_cannot_be_asked_is_said_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG, encoding="utf-8")
    [problem] = model_problems(load({"OPENAI_API_KEY": "sk-1"}, tmp_path))
    why = "providers.anthropic.key_env: ANTHROPIC_API_KEY is not set in the environment"
    assert problem == f"model anthropic/claude-sonnet-4-5 cannot be asked: {why}"
    assert list(model_problems(load({}, tmp_path / "empty"))) == []


def test_a_provider_that_is_not_there_is_said_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("model:\n  provider: antropic\n  name: x\n", encoding="utf-8")
    [problem] = model_problems(load({}, tmp_path))
    why = f"{file}:2: providers.antropic: no such provider; did you mean anthropic?"
    assert problem == f"model antropic/x cannot be asked: {why}"
