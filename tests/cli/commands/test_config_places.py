"""A mistake in the config that only a command finds is told with its file and line, as one that does not load is."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.commands.command_line import tailrace
from cli.commands.serve_process import served

MISSPELT = "# mine\nmodel:\n  provider: antropic\n  name: x\n"
NO_SUCH = "providers.antropic: no such provider; did you mean anthropic?"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir(mode=0o700)
    return made


@pytest.mark.parametrize(
    ("config", "command", "line", "told"),
    [
        (MISSPELT, ("-q", "hi"), 3, NO_SUCH),
        ("model: {provider: mine, name: x}\nproviders:\n  mine: {}\n", ("-q", "hi"), 3, "providers.mine.base_url: is"),
        ("model:\n  name: gpt-5\n", ("-q", "hi"), 2, "model: the embedded model is smollm2-135m, not gpt-5"),
        ("\nagent:\n  redact: ['(']\n", ("-q", "hi"), 3, "agent.redact: not a regular expression"),
        ("\nagent: {tools: [terminl]}\n", ("serve", "--port", "0"), 2, "agent.tools: there is no tool named"),
        ("\n\nserver: {host: 0.0.0.0}\n", ("serve", "--port", "0"), 3, "server.host: 0.0.0.0 is reachable"),
        ("\nplatforms:\n  telegram: {enabled: false}\n", ("gateway",), 2, "platforms: no platform is enabled"),
    ],
)
def test_the_file_and_the_line_are_named(
    home: Path, config: str, command: tuple[str, ...], line: int, told: str
) -> None:
    (home / "config.yaml").write_text(config, encoding="utf-8")
    done = tailrace(home, *command)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: {home}/config.yaml:{line}: {told}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("-q", "hi", "--provider", "opnai"), "error: providers.opnai: no such provider"),
        (("serve", "--host", "0.0.0.0", "--port", "0"), "error: server.host: 0.0.0.0 is reachable"),
    ],
)
def test_no_line_is_named_for_what_an_option_says(home: Path, command: tuple[str, ...], told: str) -> None:
    (home / "config.yaml").write_text("server: {host: 127.0.0.1}\nproviders: {}\n", encoding="utf-8")
    done = tailrace(home, *command)
    assert done.returncode == 1
    assert done.stderr.startswith(told)


def test_a_worker_names_them_too(home: Path) -> None:
    (home / "config.yaml").write_text("\nagent: {tools: [terminl]}\n", encoding="utf-8")
    done = tailrace(home, "serve", "--port", "0", "--workers", "2")
    assert done.returncode == 1
    assert f"error: {home}/config.yaml:2: agent.tools: there is no tool named" in done.stderr


def test_a_platform_that_is_not_started_is_logged_with_them(home: Path) -> None:
    (home / "config.yaml").write_text("\nplatforms:\n  slack: {enabled: true}\n", encoding="utf-8")
    done = tailrace(home, "gateway")
    assert done.returncode == 1
    assert f"slack is not started: {home}/config.yaml:3: platforms.slack" in done.stderr


async def test_a_server_names_them_and_fetches_no_model_of_another_name(home: Path) -> None:
    (home / "config.yaml").write_text("model:\n  name: gpt-5\n", encoding="utf-8")
    async with served(home, HTTPS_PROXY="http://127.0.0.1:9", HTTP_PROXY="http://127.0.0.1:9") as process:
        assert process.child.stderr is not None
        while b"the embedded model is not ready" not in (line := await process.child.stderr.readline()):
            assert line, "the log ended"
        await process.stop()
    assert f"{home}/config.yaml:2: model: the embedded model is smollm2-135m, not gpt-5" in line.decode()
    assert not (home / "models").exists()
