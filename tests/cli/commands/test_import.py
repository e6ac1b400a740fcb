"""`tailrace import hermes`: a Hermes home becomes a config, and what has no counterpart is named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from tailrace.cli.main import main
from tailrace.cli.setup.hermes_config import HermesImport
from tailrace.config.load import load
from tailrace.config.sections import ModelRef
from tailrace.messages import JsonObject

FIXTURE = Path(__file__).with_name("hermes_home")


@pytest.fixture
def hermes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Hermes home beside an empty home of ours."""
    home = tmp_path / "hermes"
    home.mkdir()
    shutil.copy(FIXTURE / "config.yaml", home)
    shutil.copy(FIXTURE / "dot-env", home / ".env")
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path / "tailrace"))
    return home


def test_a_hermes_home_becomes_a_config(hermes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "hermes", str(hermes)]) == 0
    told = capsys.readouterr().err
    config = load({}, tmp_path / "tailrace")
    assert (config.model.provider, config.model.name) == ("openrouter", "minimax/minimax-m2.7")
    assert config.model.fallbacks == (ModelRef("anthropic", "claude-sonnet-5"),)
    routing = {"sort": "throughput", "ignore": ["deepinfra"], "data_collection": "deny"}
    assert config.providers["openrouter"].extra_body == {"provider": routing}
    proxy = config.providers["my-proxy"]
    assert (proxy.dialect, proxy.key_env, proxy.total_timeout_s) == ("responses", "MY_PROXY_API_KEY", 300)
    assert (config.streams("cli"), config.streams("telegram")) == (False, True)
    assert (config.agent.max_turns, config.agent.context_tokens, config.agent.show_reasoning) == (120, 131072, True)
    assert (config.approvals.mode, config.approvals.timeout_s, config.checkpoints.enabled) == ("ask", 90, True)
    assert config.store.delete_after_days == 90
    assert config.mcp.servers["time"].command == ("uvx", "mcp-server-time")
    assert config.mcp.servers["notion"].key_env == "NOTION_TOKEN"
    telegram = config.platforms.by_name["telegram"]
    assert (telegram.enabled, telegram.allow, telegram.busy) == (True, ("12345", "678"), "queue")
    exported = next(line for line in told.splitlines() if line.startswith("export "))
    assert all(name in exported for name in ("OPENROUTER_API_KEY", "ANTHROPIC_API_KEY", "TELEGRAM_BOT_TOKEN"))
    assert "MCP server time: export TZ_TOKEN" in told
    left_out = next(line for line in told.splitlines() if line.startswith("no counterpart: "))
    assert left_out.removeprefix("no counterpart: ").split(", ") == [
        *("database", "memory", "group_sessions_per_user"),
        *("streaming.cursor", "agent.reasoning_effort", "display.skin"),
    ]


def test_no_secret_is_copied(hermes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = {"default": "m", "provider": "custom", "base_url": "http://127.0.0.1:9/v1", "api_key": "sk-1"}
    headers = {"Authorization": "Bearer sk-2", "X-Team": "mill"}
    settings = {
        "model": model,
        "mcp_servers": {"notes": {"url": "http://127.0.0.1:9/mcp", "headers": headers}},
        "custom_providers": ["local", {"name": "own", "base_url": "http://127.0.0.1:9/v1", "extra_headers": headers}],
        "provider_routing": ["a"],
    }
    (hermes / "config.yaml").write_text(yaml.safe_dump(settings))
    assert main(["import", "hermes", str(hermes)]) == 0
    written = (tmp_path / "tailrace" / "config.yaml").read_text()
    told = capsys.readouterr().err
    assert "sk-" not in written + told
    assert (written.count("X-Team"), "CUSTOM_API_KEY" in written) == (2, True)
    for note in ("it as CUSTOM_API_KEY", "Authorization as NOTES_AUTHORIZATION", "of own are not copied"):
        assert note in told


def test_the_home_is_found_by_its_variable_and_no_config_is_replaced(
    hermes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(hermes))
    assert [main(["import", "hermes"]) for _ in range(2)] == [0, 1]
    assert "is there already; --force" in capsys.readouterr().err
    assert main(["import", "hermes", "--force"]) == 0
    assert (tmp_path / "tailrace" / "config.yaml.bak1").exists()
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "nowhere"))
    assert main(["import", "hermes"]) == 1
    assert f"there is no {tmp_path / 'nowhere' / 'config.yaml'}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "model"),
    [
        ("model: anthropic/claude-opus-4.6", {"provider": "openrouter", "name": "anthropic/claude-opus-4.6"}),
        ("model: {default: openrouter/x/y, provider: openrouter}", {"provider": "openrouter", "name": "x/y"}),
        ("model: {default: claude-x, provider: anthropic}", {"provider": "anthropic", "name": "claude-x"}),
        ("model: {model: q, base_url: 'http://localhost:9/v1'}", {"provider": "custom", "name": "q"}),
        ("display: {streaming: true}", None),
    ],
)
def test_the_model_is_asked_where_hermes_asks_it(settings: str, model: JsonObject | None) -> None:
    assert HermesImport(yaml.safe_load(settings), {}).config.get("model") == model
