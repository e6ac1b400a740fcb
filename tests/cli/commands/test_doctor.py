"""`tailrace doctor`: what it finds, and what it says to do."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from anthropic.resources.messages.messages import DEPRECATED_MODELS
from proof.platforms.discord import FakeDiscord
from proof.platforms.telegram import FakeTelegram

from cli.commands.command_line import tailrace
from postgres_server import LOCKED_PASSWORD, LOCKED_USER, PostgresServer, free_port
from tailrace.cli.setup.doctor import findings
from tailrace.cli.setup.finding import Finding
from tailrace.cli.setup.init import SUGGESTED_MODELS, Candidate, _answered
from tailrace.integrations.slack import SlackSettings
from tailrace.journal.open_journal import open_journal
from tailrace.journal.stored.storage_format import FORMAT
from tailrace.system.extras import install_command
from tailrace.testing.provider import FaultyProvider


class Patient:
    """A set-up to be examined."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = home
        for name in os.environ:
            if name.startswith(("TAILRACE_", "HERMES_")) or name.endswith("_API_KEY"):
                monkeypatch.delenv(name)
        monkeypatch.setenv("TAILRACE_HOME", str(home))
        self.setenv = monkeypatch.setenv

    def write(self, **config: object) -> None:
        (self.home / "config.yaml").write_text(json.dumps(config))

    async def broken(self, *, offline: bool = True) -> list[Finding]:
        return [finding async for finding in findings(offline=offline) if finding.state == "broken"]


@pytest.fixture
def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Patient:
    return Patient(tmp_path, monkeypatch)


def test_doctor_says_so_in_its_exit_code(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("streaming: {enabled: maybe}")
    done = tailrace(tmp_path, "doctor")
    assert done.returncode == 1
    assert "✗ " in done.stdout
    assert "config.yaml:1: streaming.enabled" in done.stdout
    assert "mend that line of the file" in done.stdout
    assert "--force" not in done.stdout, "no remedy replaces a config"
    (tmp_path / "config.yaml").unlink()
    done = tailrace(tmp_path, "doctor", "--offline")
    assert "no config at" in done.stdout
    assert done.returncode == (1 if "its engine is not installed" in done.stdout else 0)


async def test_doctor_finds_keys_that_the_server_would_not_start_with(patient: Patient) -> None:
    patient.setenv("CI_KEY", "sk-1")
    first, second = {"name": "ci", "key_env": "CI_KEY"}, {"name": "desk", "key_env": "CI_KEY"}
    for keys, problem in (
        ([first, second], "two keys have the same value"),
        ([first, first], "the name 'ci' is taken"),
    ):
        patient.write(server={"keys": keys})
        found = [finding for finding in await patient.broken() if "server.keys" in finding.what]
        assert [problem in finding.what for finding in found] == [True]


async def test_doctor_finds_a_key_for_models_of_nobody(patient: Patient) -> None:
    patient.setenv("CI_KEY", "sk-1")
    models = ["opnai/*", "openai/gpt-5", "mine/x", "local/*", "*/small", "tailrace", "sequences"]
    patient.write(
        providers={"mine": {"dialect": "chat", "base_url": "http://127.0.0.1:9/v1"}},
        server={"keys": [{"name": "ci", "key_env": "CI_KEY", "models": models}]},
    )
    found = [finding.what for finding in await patient.broken() if "server.keys" in finding.what]
    assert found == ["server.keys[0].models: there is no provider 'opnai'"]


async def test_doctor_says_which_part_of_the_store_cannot_be_written_to(
    patient: Patient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda _place, _mode: False)  # root, who may run this, may write everywhere
    for _ in ("no database yet", "a database"):
        *_, store = await patient.broken()
        assert store.what.startswith("store SQLite ")
        assert store.what.endswith("cannot be written to")
        assert "read-only" in store.advice
        (tmp_path / "tailrace.db").touch()


async def test_doctor_misses_keys_and_providers(patient: Patient) -> None:
    patient.write(model={"provider": "openai", "name": "x", "fallbacks": [{"provider": "nobody", "name": "y"}]})
    first, second = await patient.broken()
    assert "OPENAI_API_KEY is not set" in first.what
    assert first.advice == "export it before you start tailrace"
    assert "config.yaml:" in second.what
    assert "no such provider" in second.what
    assert second.advice == "mend its name below model, or add it to providers"
    patient.setenv("OPENAI_API_KEY", "sk-1")
    assert len(await patient.broken()) == 1


@pytest.mark.parametrize("name", ["gpt-5", "openai/gpt-5"])
async def test_doctor_finds_a_model_that_is_named_without_its_provider(patient: Patient, name: str) -> None:
    patient.write(model={"name": name})
    [finding] = await patient.broken()
    assert finding.what.startswith(f"model local/{name}: {patient.home / 'config.yaml'}:1: model: ")
    patient.write(model={"name": name}, providers={"local": {"model_path": "any.gguf"}})  # it goes by any name
    assert not [finding for finding in await patient.broken() if "config.yaml" in finding.what]


async def test_doctor_names_a_missing_key_once(patient: Patient) -> None:
    file = patient.home / "config.yaml"
    key = {"key_env": "OPENAI_API_KEY"}
    patient.write(
        model={"provider": "openai", "name": "x"},
        providers={"openai": key, "spare": key | {"base_url": "http://127.0.0.1:1/v1"}},
    )
    found = [each.what async for each in findings(offline=True) if "OPENAI_API_KEY" in each.what]
    assert found == [
        f"model openai/x: {file}:1: providers.openai.key_env: OPENAI_API_KEY is not set in the environment",
        "providers.spare: OPENAI_API_KEY is not set",
    ]


def test_a_model_that_is_named_is_the_one_of_the_provider_that_is_chosen() -> None:
    candidates = [Candidate("openai", "gpt-5-mini", "OPENAI_API_KEY is set"), Candidate("local", "smollm2-135m", "")]
    assert _answered("1", candidates, "gpt-5").model == "gpt-5"
    assert _answered("1", candidates, "").model == "gpt-5-mini"
    assert _answered("openai", candidates, "gpt-5").model == "gpt-5"


def test_the_suggested_claude_is_not_about_to_end() -> None:
    """Nor is the one that the documents name: both are what a new user asks first."""
    readme = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    assert SUGGESTED_MODELS["anthropic"] not in DEPRECATED_MODELS
    assert f"anthropic/{SUGGESTED_MODELS['anthropic']}" in readme


async def test_doctor_names_a_key_without_which_the_server_does_not_start(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient.setenv("OPENAI_API_KEY", "sk-1")
    keys = [{"name": "ci", "key_env": "CI_KEY", "usd_per_day": 5}]
    patient.write(model={"provider": "openai", "name": "x"}, server={"keys": keys})
    [finding] = await patient.broken()
    assert finding.what == "server.keys[0].key_env: CI_KEY is not set in the environment"
    assert finding.advice == "export it before you start tailrace serve"
    patient.setenv("CI_KEY", "secret")
    assert await patient.broken() == []
    monkeypatch.setattr("tailrace.app.costs.find_spec", lambda name: None)
    [finding] = await patient.broken()
    assert (finding.what, finding.advice) == (
        "server.keys[0].usd_per_day: prices need an extra",
        install_command("prices"),
    )


async def test_doctor_names_what_an_mcp_server_lacks(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = {
        "calc": {"command": ["no-such-program", "x"]},
        "far": {"url": "http://127.0.0.1:1/mcp", "key_env": "FAR_KEY"},
        "fine": {"command": [sys.executable, "server.py"]},
    }
    patient.setenv("OPENAI_API_KEY", "sk-1")
    patient.write(model={"provider": "openai", "name": "x"}, mcp={"servers": servers})
    lacking = ["mcp.servers.calc: there is no program no-such-program", "mcp.servers.far: FAR_KEY is not set"]
    monkeypatch.setattr("tailrace.cli.setup.doctor.find_spec", lambda name: object())
    assert [finding.what for finding in await patient.broken()] == lacking
    monkeypatch.setattr("tailrace.cli.setup.doctor.find_spec", lambda name: None)
    first, *others = await patient.broken()
    assert (first.what, first.advice) == ("mcp.servers: MCP servers need an extra", install_command("mcp"))
    assert [finding.what for finding in others] == lacking


async def test_doctor_asks_whether_endpoints_answer(patient: Patient, server: FaultyProvider) -> None:
    local = {"dialect": "chat", "base_url": server.openai_url}
    patient.write(model={"provider": "mine", "name": "ok"}, providers={"mine": local})
    assert await patient.broken(offline=False) == []
    await server.close()
    [finding] = await patient.broken(offline=False)
    port = server.openai_url.rpartition(":")[2].partition("/")[0]
    assert finding.what.startswith("mine: cannot connect to 127.0.0.1: ")
    assert port in finding.what


async def test_doctor_goes_on_after_a_key_that_no_header_can_hold(patient: Patient, server: FaultyProvider) -> None:
    providers = {"mine": {"base_url": server.openai_url, "key_env": "MY_KEY"}, "spare": {"base_url": server.openai_url}}
    patient.write(model={"provider": "mine", "name": "ok"}, providers=providers)
    patient.setenv("MY_KEY", "sk–1")  # a dash that a word processor made of a hyphen
    found = [finding async for finding in findings()]
    [broken] = [finding for finding in found if finding.state == "broken"]
    assert "providers.mine: authorization: holds a character that no HTTP header can" in broken.what
    assert "sk–1" not in broken.what
    assert "spare: 127.0.0.1 answers" in [finding.what for finding in found]
    assert found[-1].what.startswith("store ")


async def test_doctor_checks_platforms_and_their_extras(
    patient: Patient, server: FaultyProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient.write(
        model={"provider": "mine", "name": "ok"},
        providers={"mine": {"base_url": server.openai_url}},
        platforms={"telegram": {"enabled": True, "token_env": "NO_SUCH_TOKEN"}},
    )
    monkeypatch.setattr("tailrace.cli.setup.doctor.find_spec", lambda name: None)
    extra, token = await patient.broken(offline=False)  # each is said once, although trying the platform meets both
    assert (extra.what, extra.advice) == (
        "platforms.telegram: its library is not installed",
        install_command("telegram"),
    )
    assert token.what == "platforms.telegram: NO_SUCH_TOKEN is not set"
    hints = [(finding.what, finding.advice) async for finding in findings(offline=True) if finding.state == "note"]
    assert ("tailrace acp: what it needs is not installed", install_command("acp")) in hints
    assert ("tailrace mcp: what it needs is not installed", install_command("mcp")) in hints


async def test_doctor_names_a_token_of_two_lines_once(patient: Patient) -> None:
    patient.write(platforms={"telegram": {"enabled": True, "allow": ["1"]}})
    patient.setenv("TELEGRAM_BOT_TOKEN", "12:ab\ncd")
    [token] = [each for each in await patient.broken(offline=False) if "telegram" in each.what]
    key = "platforms.telegram.token_env"
    assert token.what == f"{key}: TELEGRAM_BOT_TOKEN holds a line break or another control character"
    assert token.advice == "copy it again, as one line"


async def test_doctor_says_what_to_look_at_where_postgresql_is_away(patient: Patient, server: FaultyProvider) -> None:
    port = free_port()
    patient.write(
        model={"provider": "mine", "name": "ok"},
        providers={"mine": {"base_url": server.openai_url}},
        store={"url": f"postgresql://tailrace:hunter2@127.0.0.1:{port}/runs"},
    )
    [finding] = await patient.broken()
    assert finding.what.startswith(f"store: PostgreSQL at 127.0.0.1:{port}/runs ")
    assert "PGPASSWORD" in finding.advice


async def test_doctor_and_chat_refuse_a_bus_that_is_not_there(patient: Patient, server: FaultyProvider) -> None:
    patient.write(
        model={"provider": "mine", "name": "ok"},
        providers={"mine": {"base_url": server.openai_url}},
        bus={"url": "redis://:hunter2@bus"},
    )
    [finding] = await patient.broken()
    assert finding.what == "bus.url: Redis carries entries between machines: store.url must be postgresql://…"
    done = tailrace(patient.home, "chat", "-q", "Hello?")
    assert (done.returncode, done.stderr) == (1, f"error: {patient.home}/config.yaml:1: {finding.what}\n")


async def test_doctor_and_chat_say_what_is_wrong_with_postgresql_in_one_line(
    patient: Patient, server: FaultyProvider, postgres_server: PostgresServer, postgres_url: str
) -> None:
    async def examined(url: str) -> list[str]:
        patient.write(
            model={"provider": "mine", "name": "ok"},
            providers={"mine": {"base_url": server.openai_url}},
            store={"url": url},
        )
        return [finding.what for finding in await patient.broken()]

    at = f"127.0.0.1:{postgres_server.port}/postgres"
    (locked,) = await examined(f"postgresql://{LOCKED_USER}:hunter2@{at}x")
    assert locked.startswith(f"store: PostgreSQL at {at}x refuses: ")
    assert "hunter2" not in locked
    port = free_port()
    (away,) = await examined(f"postgresql://ann:hunter2@127.0.0.1:{port}/x")
    said = f"PostgreSQL at 127.0.0.1:{port}/x cannot be reached: connection refused"
    assert away == f"store: {said}"
    (unencoded,) = await examined(f"postgresql://ann:hunter2/@127.0.0.1:{port}/x")
    assert "hunter2" not in unencoded
    await examined(f"postgresql://ann:hunter2@127.0.0.1:{port}/x")
    done = tailrace(patient.home, "chat", "-q", "Hello?")
    assert (done.returncode, done.stderr) == (1, f"error: {said}\n")
    assert await examined(postgres_url) == []


async def test_the_password_of_the_store_may_be_in_the_environment(
    patient: Patient, server: FaultyProvider, postgres_server: PostgresServer
) -> None:
    """Also for commands that take the secrets out of their own environment before they run anything."""
    database = f"of_{LOCKED_USER}_{secrets.token_hex(4)}"
    postgres_server.sql(f"CREATE DATABASE {database} OWNER {LOCKED_USER}")
    patient.write(
        model={"provider": "mine", "name": "ok"},
        providers={"mine": {"base_url": server.openai_url}},
        store={"url": f"postgresql://{LOCKED_USER}@127.0.0.1:{postgres_server.port}/{database}"},
    )
    assert tailrace(patient.home, "runs").returncode == 1
    asked = await asyncio.to_thread(tailrace, patient.home, "chat", "-q", "Hello?", PGPASSWORD=LOCKED_PASSWORD)
    assert (asked.returncode, asked.stderr.count(LOCKED_PASSWORD)) == (0, 0), asked.stderr
    listed = tailrace(patient.home, "runs", PGPASSWORD=LOCKED_PASSWORD)
    assert (listed.returncode, listed.stdout.count("run_")) == (0, 1)


async def test_doctor_tries_the_tokens_of_platforms(patient: Patient, server: FaultyProvider) -> None:
    async with FakeTelegram() as telegram:
        patient.write(
            model={"provider": "mine", "name": "ok"},
            providers={"mine": {"base_url": server.openai_url}},
            platforms={"telegram": {"enabled": True, "token_env": "A_TOKEN", "allow": ["1"], "base_url": telegram.url}},
        )
        patient.setenv("A_TOKEN", telegram.token)
        said = [finding.what async for finding in findings() if finding.what.startswith("telegram: ")]
        assert [line for line in said if telegram.username in line] == said != []
        patient.setenv("A_TOKEN", "43:of-nobody")
        [finding] = await patient.broken(offline=False)
    assert finding.what.startswith("telegram: ")
    assert finding.advice == "is the token valid? see docs/integrations/telegram.md"


@pytest.mark.parametrize(
    ("name", "streaming", "is_told"),
    [
        ("slack", {}, True),
        ("slack", {"enabled": True}, False),
        ("slack", {"slack": False}, False),
        ("whatsapp", {}, False),
    ],
)
async def test_doctor_says_that_a_chat_could_stream(
    patient: Patient, name: str, streaming: dict[str, bool], is_told: bool
) -> None:
    patient.write(platforms={name: {"enabled": True, "allow": ["*"]}}, streaming=streaming)
    said = [finding.what async for finding in findings(offline=True) if "answers appear whole" in finding.what]
    assert said == ([f"platforms.{name}: answers appear whole"] if is_told else [])


@pytest.mark.parametrize(
    ("name", "settings", "missed"),
    [
        ("slack", {"token_env": "A_TOKEN", "app_token_env": "NONE"}, ["NONE"]),
        ("matrix", {"token_env": "A_TOKEN", "password_env": "NONE"}, []),
        ("matrix", {"token_env": "NOR_THIS", "password_env": "NONE"}, ["NONE", "NOR_THIS"]),
    ],
)
async def test_doctor_misses_the_secrets_that_a_platform_needs(
    patient: Patient, name: str, settings: dict[str, str], missed: list[str]
) -> None:
    patient.setenv("A_TOKEN", "set")
    patient.write(platforms={name: {"enabled": True, "allow": ["*"], **settings}})
    said = [finding.what for finding in await patient.broken() if finding.what.endswith("is not set")]
    assert said == [f"platforms.{name}: {variable} is not set" for variable in missed]


async def test_a_platforms_own_settings_say_whether_it_needs_every_secret(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new platform needs no edit of the doctor."""
    patient.setenv("A_TOKEN", "set")
    patient.write(platforms={"slack": {"enabled": True, "allow": ["*"], "token_env": "A_TOKEN"}})
    monkeypatch.setattr(SlackSettings, "needs_every_secret", False)
    assert [finding.what for finding in await patient.broken() if finding.what.endswith("is not set")] == []


async def test_doctor_names_the_store_its_format_and_the_bus(patient: Patient, server: FaultyProvider) -> None:
    patient.write(model={"provider": "mine", "name": "ok"}, providers={"mine": {"base_url": server.openai_url}})
    database = patient.home / "tailrace.db"
    said = [finding.what async for finding in findings(offline=True)]
    assert said[-1] == f"store SQLite {database}: not there yet; the first run makes it"
    async with open_journal("sqlite:///tailrace.db", database):
        said = [finding.what async for finding in findings(offline=True)]
    assert said[-1] == f"store SQLite {database}, format {FORMAT}: can be read and written"
    assert "bus: none; processes hear of each other's runs through the store" in said


async def test_doctor_says_what_keeps_the_store_from_being_written(
    patient: Patient, server: FaultyProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient.write(model={"provider": "mine", "name": "ok"}, providers={"mine": {"base_url": server.openai_url}})
    async with open_journal("sqlite:///tailrace.db", patient.home / "tailrace.db"):
        monkeypatch.setattr("tailrace.journal.sqlite.store.MIN_FREE_BYTES", 1 << 60)
        [finding] = await patient.broken()
    assert "are left to write" in finding.what


async def test_doctor_advises_no_backup_where_something_else_is_in_the_stores_place(
    patient: Patient, server: FaultyProvider
) -> None:
    patient.write(model={"provider": "mine", "name": "ok"}, providers={"mine": {"base_url": server.openai_url}})
    database = patient.home / "tailrace.db"
    database.mkdir(mode=0o700)
    [directory] = await patient.broken()
    database.rmdir()
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE t (x)")
    database.chmod(0o600)
    [foreign] = await patient.broken()
    assert (directory.what, directory.advice) == (
        f"store SQLite {database}: it is a directory",
        "set store.url to a file",
    )
    assert (foreign.what, foreign.advice) == (
        f"store: {database} is another program's database; set store.url to a file of its own",
        "",
    )


async def test_doctor_finds_a_damaged_database(patient: Patient, server: FaultyProvider) -> None:
    patient.write(model={"provider": "mine", "name": "ok"}, providers={"mine": {"base_url": server.openai_url}})
    database = patient.home / "tailrace.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.executemany("INSERT INTO t VALUES (?)", [("x" * 500,)] * 500)
        connection.commit()
    data = bytearray(database.read_bytes())
    data[8192:40000] = b"\xff" * (40000 - 8192)
    database.write_bytes(data)
    database.chmod(0o600)
    [finding] = await patient.broken()
    assert finding.what.startswith(f"store SQLite {database}: ")
    assert database.read_bytes() == data
    database.write_bytes(b"rubbish" * 100)
    [finding] = await patient.broken()
    assert finding.what.startswith(f"store SQLite {database}: is not a database; nothing was written.")
    assert f"then run: sqlite3 {database} .recover | sqlite3 recovered.db; sqlite3 recovered.db '" in finding.what
    assert "docs/operations.md" in finding.advice


@pytest.mark.parametrize(
    ("name", "user", "is_odd"),
    [
        ("telegram", "@ada", True),
        ("telegram", "7", False),
        ("slack", "ada", True),
        ("matrix", "ada", True),
        ("whatsapp", "ada", True),
        ("whatsapp", "US.13491208655302741918", False),
        ("whatsapp", "+15551234567", False),
        ("whatsapp", "0015551234567", True),
    ],
)
async def test_doctor_says_that_a_name_is_no_id(patient: Patient, name: str, user: str, is_odd: bool) -> None:
    patient.write(platforms={name: {"enabled": True, "allow": [user, "*"]}})
    said = [finding.what for finding in await patient.broken() if ".allow" in finding.what]
    assert said == ([f"platforms.{name}.allow: {user} is no user's id"] if is_odd else [])


async def test_doctor_says_of_an_empty_allow_list_how_people_are_let_in(patient: Patient) -> None:
    patient.write(platforms={"telegram": {"enabled": True}})
    [finding] = [found async for found in findings(offline=True) if ".allow" in found.what]
    assert finding.what == "platforms.telegram.allow is empty: only who was let in by a code is served"
    assert finding.advice.startswith("platforms.telegram.allow: [your id]; or write to the bot, and ")
    assert finding.advice.endswith(" gateway --pair CODE")


async def test_doctor_tells_a_network_that_is_away_from_a_token_that_is_wrong(patient: Patient) -> None:
    patient.setenv("TELEGRAM_BOT_TOKEN", "1:wrong")
    patient.write(
        platforms={"telegram": {"enabled": True, "allow": ["7"], "base_url": f"http://127.0.0.1:{free_port()}"}}
    )
    [away] = [finding for finding in await patient.broken(offline=False) if finding.what.startswith("telegram:")]
    assert away.advice.startswith("does this machine reach it (network, DNS, proxy)?")
    async with FakeTelegram() as telegram:
        patient.write(platforms={"telegram": {"enabled": True, "allow": ["7"], "base_url": telegram.url}})
        [wrong] = [finding for finding in await patient.broken(offline=False) if finding.what.startswith("telegram:")]
    assert wrong.advice.startswith("is the token valid?")


async def test_doctor_doubts_no_token_where_the_reason_is_another(patient: Patient) -> None:
    async with FakeDiscord() as discord:
        discord.content_intent = False
        patient.setenv("DISCORD_BOT_TOKEN", discord.token)
        patient.write(platforms={"discord": {"enabled": True, "allow": ["*"], "base_url": discord.url}})
        [finding] = [one for one in await patient.broken(offline=False) if one.what.startswith("discord:")]
    assert finding.what.startswith("discord: the message content intent is not enabled for this bot")
    assert finding.advice == "see docs/integrations/discord.md"
