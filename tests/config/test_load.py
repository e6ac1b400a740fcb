"""Config loading: defaults, every key, precedence, the environment, where things lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.config.load import Config, home_directory, load
from tailrace.config.sections import CallPolicy, McpServer, ModelRef, Sections, TransportSettings
from tailrace.errors import ConfigError
from tailrace.integrations.discord import DiscordSettings
from tailrace.integrations.matrix import MatrixSettings
from tailrace.integrations.telegram import TelegramSettings
from tailrace.integrations.whatsapp import WhatsAppSettings

EVERYTHING = """\
model: {provider: openai, name: gpt-5, fallbacks: [{provider: openrouter, name: minimax/minimax-m2.7}]}
providers:
  openrouter:
    dialect: chat
    base_url: https://openrouter.ai/api/v1
    key_env: OPENROUTER_API_KEY
    headers: {X-Title: tailrace}
    extra_body: {provider: {only: [fireworks], quantizations: null}, n: 1, t: 0.5, on: true}
    model_path: models/a.gguf
    stream: false
    idle_timeout_s: null
    max_attempts: 1
  kept: {dialect: responses, base_url: "https://kept.example/v1", reattach: true}
streaming: {enabled: true, cli: false, telegram: true, discord: true, slack: true, matrix: true, whatsapp: true,
  homeassistant: true, api_server: true, edit_interval: 2, min_tokens: 5}
call: {connect_timeout_s: 1, first_token_timeout_s: 2, idle_timeout_s: 3, progress_timeout_s: 4, total_timeout_s: 5,
  max_attempts: 6, backoff_s: 7, backoff_max_s: 8.5}
transport: {proxy: "http://user:pass@proxy:3128"}
agent:
  {max_turns: 3, max_tokens: 90000, context_tokens: 8000, tools: [terminal], roots: [notes], rules: [],
   show_reasoning: true, think_tags: [musing], redact: ['tok_[a-z]+']}
approvals: {mode: deny, timeout_s: 5, edits: ask, allow: ["git status"],
  notify: ["telegram:1"], api: deny}
mcp: {servers: {notes: {command: [notes-mcp, --all], env_allow: [NOTES_DIR], timeout_s: 5},
  remote: {url: "https://mcp.example/mcp", key_env: MCP_KEY},
  old: {url: "https://mcp.example/events", transport: sse, headers: {X-Team: mill}, headers_env: {X-Key: MCP_KEY},
    trust: true}}}
checkpoints: {enabled: true}
store: {url: "postgresql://u:p@db/tailrace", durability: fsync, lease_s: 5,
  compact_after_days: 1.5, delete_after_days: 90}
bus: {url: "redis://bus:6379/0"}
server: {host: 0.0.0.0, port: 80, key_env: KEY, cors_origins: ["https://a.example"], max_body_mb: 1,
  keys: [{name: ci, key_env: CI, scopes: [models]}], hosts: [a.example], workers: 4, max_requests: 9, drain_s: 3,
  aliases: {"*": "up/*"}, strict: true}
flows: {env_allow: [MY_KEY], allow_hosts: [127.0.0.1]}
platforms:
  telegram: {enabled: true, token_env: T, allow: [12345, 0042, "*"], base_url: null, respond: all}
  discord: {token_env: T, base_url: http://x/api/v10, gateway_url: ws://x/}
  slack: {token_env: T, app_token_env: A, base_url: http://x/api/}
  whatsapp: {token_env: T, phone_number_id: 001, app_secret_env: S, verify_token_env: V, base_url: http://x}
  homeassistant: {url: http://ha:8123, token_env: H}
  matrix: {homeserver: https://m.example, user: "@bot:m.example", password_env: P, token_env: T}
"""


def config_of(text: str, home: Path, **env: str) -> Config:
    (home / "config.yaml").write_text(text, encoding="utf-8")
    return load(env, home)


def test_without_a_file_everything_is_a_default(tmp_path: Path) -> None:
    config = load({}, tmp_path)
    assert Sections(**{name: getattr(config, name) for name in Sections.__struct_fields__}) == Sections()
    assert (config.model.provider, config.model.name, config.model.fallbacks) == ("local", "smollm2-135m", ())
    assert config.call == CallPolicy(
        connect_timeout_s=10,
        first_token_timeout_s=120,
        idle_timeout_s=None,
        progress_timeout_s=300,
        total_timeout_s=1800,
        max_attempts=3,
        backoff_s=0.5,
        backoff_max_s=30,
    )
    assert config.transport.proxy == "environment"
    assert (config.streaming.enabled, config.streaming.min_tokens, config.streaming.edit_interval) == (None, 20, None)
    assert (config.agent.max_turns, config.agent.show_reasoning) == (50, False)
    assert config.agent.tools == ("terminal", "read_file", "write_file", "patch", "search_files", "web_fetch")
    assert (config.approvals.mode, config.approvals.wait_s(), config.approvals.allow) == ("ask", 60, ())
    assert (config.approvals.wait_s(in_chat=True), config.approvals.api) == (900, "wait")
    assert (config.store.url, config.store.durability) == ("sqlite:///tailrace.db", "committed")
    assert (config.bus.url, config.checkpoints.enabled, config.flows.env_allow) == ("auto", None, ())
    assert (config.server.host, config.server.port, config.server.max_body_mb) == ("127.0.0.1", 8642, 32)
    assert (config.server.key_env, config.server.cors_origins) == ("TAILRACE_API_KEY", ())
    assert not config.platforms.by_name
    assert not config.yolo


@pytest.mark.parametrize("text", ["", "\n", "# nothing but a comment\n", "---\n", "agent:\nproviders:\n", "{}"])
def test_an_empty_file_or_section_is_all_defaults(tmp_path: Path, text: str) -> None:
    assert config_of(text, tmp_path).agent == load({}, tmp_path / "none").agent


def test_every_key_is_read(tmp_path: Path) -> None:
    config = config_of(EVERYTHING, tmp_path)
    assert config.model.fallbacks == (ModelRef("openrouter", "minimax/minimax-m2.7"),)
    provider = config.providers["openrouter"]
    assert (provider.dialect, provider.base_url) == ("chat", "https://openrouter.ai/api/v1")
    assert (provider.key_env, provider.model_path) == ("OPENROUTER_API_KEY", "models/a.gguf")
    assert dict(provider.headers) == {"X-Title": "tailrace"}
    assert provider.stream is False
    assert dict(provider.extra_body) == {
        "provider": {"only": ["fireworks"], "quantizations": None},
        "n": 1,
        "t": 0.5,
        "on": True,
    }
    assert config.call == CallPolicy(1, 2, 3, 4, 5, 6, 7, 8.5)
    assert config.transport == TransportSettings("http://user:pass@proxy:3128")
    assert (config.approvals.mode, config.approvals.allow) == ("deny", ("git status",))
    assert (config.server.host, config.server.port, config.server.cors_origins) == (
        "0.0.0.0",
        80,
        ("https://a.example",),
    )
    assert (config.store.durability, config.bus.url) == ("fsync", "redis://bus:6379/0")
    assert config.flows.env_allow == ("MY_KEY",)
    assert dict(config.mcp.servers) == {
        "notes": McpServer(("notes-mcp", "--all"), ("NOTES_DIR",), timeout_s=5),
        "remote": McpServer(url="https://mcp.example/mcp", key_env="MCP_KEY"),
        "old": McpServer(
            url="https://mcp.example/events",
            transport="sse",
            headers={"X-Team": "mill"},
            headers_env={"X-Key": "MCP_KEY"},
            trust=True,
        ),
    }
    discord, matrix = config.platforms.get("discord", DiscordSettings), config.platforms.get("matrix", MatrixSettings)
    assert discord is not None
    assert discord.gateway_url == "ws://x/"
    assert matrix is not None
    assert matrix.user == "@bot:m.example"


def test_no_key_of_the_file_is_ignored(tmp_path: Path) -> None:
    """`EVERYTHING` gives every key, and none its default."""
    config, default = config_of(EVERYTHING, tmp_path), Sections()
    for name in Sections.__struct_fields__:
        section, plain = getattr(config, name), getattr(default, name)
        for key in getattr(plain, "__struct_fields__", ()):
            assert getattr(section, key) != getattr(plain, key), f"{name}.{key}"


def test_ids_are_text_exactly_as_written(tmp_path: Path) -> None:
    """YAML would make 34 of 0042 and 1 of 001; users are compared as text."""
    config = config_of(EVERYTHING, tmp_path)
    assert config.platforms.by_name["telegram"] == TelegramSettings(
        enabled=True, token_env="T", allow=("12345", "0042", "*"), respond="all"
    )
    whatsapp = config.platforms.get("whatsapp", WhatsAppSettings)
    assert whatsapp is not None
    assert whatsapp.phone_number_id == "001"


def test_a_platform_with_nothing_under_it_is_configured_but_not_enabled(tmp_path: Path) -> None:
    config = config_of("platforms:\n  telegram:\n", tmp_path)
    assert config.platforms.by_name["telegram"] == TelegramSettings()
    assert not TelegramSettings().enabled


def test_a_provider_overrides_the_call_policy_key_by_key(tmp_path: Path) -> None:
    config = config_of(EVERYTHING, tmp_path)
    assert config.call_for("openrouter") == CallPolicy(1, 2, None, 4, 5, 1, 7, 8.5)  # null is a value, not an absence
    assert config.call_for("openai") is config.call


# ── whether a surface streams ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("asked", "own", "variable", "master", "streams"),
    [
        (None, None, None, None, False),
        (None, None, None, True, True),
        (None, None, False, True, False),
        (None, None, True, False, True),
        (None, False, True, True, False),
        (None, True, False, False, True),
        (False, True, True, True, False),
        (True, False, False, False, True),
    ],
)
def test_whether_a_surface_streams_first_match_wins(
    tmp_path: Path, asked: bool | None, own: bool | None, variable: bool | None, master: bool | None, streams: bool
) -> None:
    switches = {"enabled": master, "telegram": own}
    said = ", ".join(f"{key}: {str(value).lower()}" for key, value in switches.items() if value is not None)
    env = {} if variable is None else {"TAILRACE_STREAMING_ENABLED": str(variable)}
    config = config_of(f"streaming: {{{said}}}", tmp_path, **env)
    assert config.streams("telegram", asked) is streams


def test_without_a_switch_the_terminal_streams_and_chats_do_not(tmp_path: Path) -> None:
    config = config_of("providers: {mine: {base_url: 'http://127.0.0.1:9/v1'}}", tmp_path)
    assert config.streams("cli")
    assert not config.streams("telegram")
    assert not config_of("streaming: {enabled: false}", tmp_path).streams("cli")


def test_one_platforms_switch_is_its_own(tmp_path: Path) -> None:
    config = config_of("streaming: {cli: true}", tmp_path)
    assert config.streams("cli")
    assert not config.streams("slack")


@pytest.mark.parametrize("name", ["whatsapp", "homeassistant"])
def test_a_platform_that_cannot_edit_may_have_a_switch_and_ignores_it(tmp_path: Path, name: str) -> None:
    """Whether it is used depends on the platform's capabilities; see tests/gateway."""
    assert config_of(f"streaming: {{{name}: true}}", tmp_path).streams(name)


@pytest.mark.parametrize("word", ["1", "true", "TRUE", "yes", "on", " on "])
def test_the_aliases_are_honoured(tmp_path: Path, word: str) -> None:
    config = load({"HERMES_STREAMING_ENABLED": word, "HERMES_YOLO_MODE": word}, tmp_path)
    assert config.streams("cli")
    assert config.yolo


def test_our_own_variable_wins_over_its_alias(tmp_path: Path) -> None:
    env = {"TAILRACE_STREAMING_ENABLED": "0", "HERMES_STREAMING_ENABLED": "1", "TAILRACE_YOLO_MODE": "no"}
    config = load({**env, "HERMES_YOLO_MODE": "1"}, tmp_path)
    assert not config.streams("cli")
    assert not config.yolo


def test_a_variable_set_to_nothing_is_not_set(tmp_path: Path) -> None:
    config = load({"TAILRACE_STREAMING_ENABLED": "", "HERMES_STREAMING_ENABLED": "1"}, tmp_path)
    assert config.streams("cli")


@pytest.mark.parametrize("name", ["TAILRACE_STREAMING_ENABLED", "HERMES_YOLO_MODE"])
def test_a_switch_that_is_neither_is_an_error_that_names_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: expected true or false; found 'maybe'$"):
        load({name: "maybe"}, tmp_path)


def test_yolo_may_also_be_a_mode(tmp_path: Path) -> None:
    assert config_of("approvals: {mode: yolo}", tmp_path).yolo


# ── the environment and where things lie ─────────────────────────────────────────────────────────────────────


def test_the_home_is_the_argument_then_the_variable_then_the_default(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("agent: {max_turns: 7}")
    assert load({"TAILRACE_HOME": "/nowhere"}, tmp_path).agent.max_turns == 7
    assert load({"TAILRACE_HOME": str(tmp_path)}).agent.max_turns == 7
    assert load({"TAILRACE_HOME": "~/x", "HOME": "/home/someone"}).home == Path("/home/someone/x")
    assert load({"HOME": "/home/someone"}).home == Path("/home/someone/.tailrace")
    assert load({"HOME": "/home/someone", "TAILRACE_HOME": ""}).home == Path("/home/someone/.tailrace")


def test_a_user_without_a_home_directory_is_told_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", unknown)
    told = "HOME is not set and this user has no home directory; set TAILRACE_HOME to one"
    with pytest.raises(ConfigError, match=told):
        load({})
    for named in ("~/.tailrace", " "):
        with pytest.raises(ConfigError, match=told):
            home_directory({"TAILRACE_HOME": named})  # of `tailrace init` and `tailrace add`
    assert load({"TAILRACE_HOME": "/nowhere"}).home == Path("/nowhere")


def test_the_process_environment_plays_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_STREAMING_ENABLED", "1")
    monkeypatch.setenv("TAILRACE_HOME", "/nowhere")
    config = load({"HOME": str(tmp_path)})
    assert not config.streams("telegram")
    assert config.home == tmp_path / ".tailrace"


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///tailrace.db", "HOME/tailrace.db"),
        ("sqlite:////var/lib/t.db", "/var/lib/t.db"),
        ("sqlite:///~/t.db", "/home/someone/t.db"),
        ("sqlite:///a%20b.db", "HOME/a b.db"),
        ("postgresql://db/x", None),
        ("memory://", None),
    ],
)
def test_where_the_database_lies(tmp_path: Path, url: str, path: str | None) -> None:
    config = config_of(f"store: {{url: '{url}'}}", tmp_path, HOME="/home/someone")
    assert config.database == (Path(path.replace("HOME", str(tmp_path))) if path else None)


def test_secrets_come_from_the_environment_as_it_was_on_load(tmp_path: Path) -> None:
    env = {"OPENROUTER_API_KEY": "sk-1", "EMPTY": "", "SPLIT": "EAA\nB"}
    config = load(env, tmp_path)
    env["OPENROUTER_API_KEY"] = "sk-2"
    assert config.secret("OPENROUTER_API_KEY") == "sk-1"
    assert config.secret("EMPTY") is None
    assert config.secret(None) is None
    assert config.require_secret("OPENROUTER_API_KEY", "providers.openrouter.key_env") == "sk-1"
    with pytest.raises(ConfigError, match=r"^providers\.x\.key_env: EMPTY is not set in the environment$"):
        config.require_secret("EMPTY", "providers.x.key_env")
    with pytest.raises(ConfigError, match=r"^platforms\.x\.token_env: SPLIT holds a line break or another control "):
        config.require_secret("SPLIT", "platforms.x.token_env")


def test_J114_no_secret_is_in_the_repr(tmp_path: Path) -> None:
    text = """
providers:
  x:
    base_url: "https://user:hunter2@host/v1?api-key=hunter2#hunter2"
    headers: {Authorization: hunter2}
    extra_body: {api_key: hunter2, deep: {er: hunter2}}
store: {url: "postgresql://u:hunter2@db/x"}
bus: {url: "redis://:hunter2@bus"}
transport: {proxy: "http://u:hunter2@proxy:3128"}
"""
    config = config_of(text, tmp_path, OPENAI_API_KEY="hunter2")
    for shown in (repr(config), str(config), repr(config.providers), repr(config.__rich_repr__())):
        assert "hunter2" not in shown
    assert "'postgresql://…@db/x'" in repr(config)
    assert "'https://…@host/v1?…'" in repr(config)
    assert "Authorization" in repr(config)
    assert config.store.url == "postgresql://u:hunter2@db/x"


def test_the_value_is_frozen(tmp_path: Path) -> None:
    config = config_of(EVERYTHING, tmp_path)
    with pytest.raises(AttributeError):
        config.server.port = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        config.providers["x"] = config.providers["openrouter"]  # type: ignore[index]


@pytest.mark.parametrize("blank", ["", "  ", "\n", "\t \r\n"])
def test_M151_a_variable_of_blanks_is_not_set(tmp_path: Path, blank: str) -> None:
    config = config_of("server: {key_env: KEY}\n", tmp_path, KEY=blank)
    assert config.secret("KEY") is None
    with pytest.raises(ConfigError, match="KEY is not set"):
        config.require_secret("KEY", "server.key_env")


def test_M151_blanks_around_a_secret_are_dropped(tmp_path: Path) -> None:
    assert config_of("", tmp_path, KEY=" sk-1\n").secret("KEY") == "sk-1"


# ── the file of secrets ──────────────────────────────────────────────────────────────────────────────────────


def test_a_variable_that_is_not_set_comes_from_the_file_beside_the_config(tmp_path: Path) -> None:
    (tmp_path / "env").write_text("# mine\nexport A_KEY='from the file'\nB_KEY = plain\n\nC_KEY=a=b#c\n")
    config = load({"A_KEY": "from the environment", "B_KEY": "  "}, tmp_path)
    assert [config.secret(name) for name in ("A_KEY", "B_KEY", "C_KEY")] == ["from the environment", "plain", "a=b#c"]
    assert config.environment.without(()) == {"A_KEY": "from the environment", "B_KEY": "  "}


def test_a_mistake_in_it_is_told_by_its_line_without_its_text(tmp_path: Path) -> None:
    (tmp_path / "env").write_text("A=1\nsk-secret-without-a-name\n")
    with pytest.raises(ConfigError) as mistake:
        load({}, tmp_path)
    assert str(mistake.value) == f"{tmp_path / 'env'}:2: expected NAME=value"
