"""Integrations of other packages: found when they are installed, and left out where they are broken."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from plugins.broken_package import GOOD, broken_package

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "integration_mattermost"


def environment(home: Path, *packages: Path, **variables: str) -> dict[str, str]:
    path = [*map(str, packages), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    kept = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "TAILRACE_HOME": str(home)}
    return {**kept, **variables}


def tailrace(arguments: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tailrace", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)


# ── a package of somebody else ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def mattermost(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, installed by pip and nowhere in our own tree."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", str(target), str(EXAMPLE)], check=True, timeout=120, cwd=target)
    return target


def test_an_installed_package_is_a_platform_like_ours(mattermost: Path, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "streaming: {mattermost: true}\n"
        "platforms: {mattermost: {enabled: true, url: 'http://chat.example.org', allow: [ada]}}\n"
    )
    env = environment(tmp_path, mattermost)
    assert "mattermost" in tailrace(["add", "--help"], env).stdout
    report = tailrace(["doctor", "--offline"], env).stdout
    assert "platforms.mattermost: MATTERMOST_TOKEN is not set" in report
    assert "platforms.mattermost.allow: ada is no user's id" in report
    assert "the token is sent in clear text" in report, "the package's own check"


def test_a_mistake_in_its_section_is_told_with_its_line(mattermost: Path, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("platforms:\n  mattermost:\n    uri: http://chat.example.org\n")
    done = tailrace(["runs"], environment(tmp_path, mattermost))
    assert (done.returncode, done.stderr) == (
        1,
        f"error: {tmp_path / 'config.yaml'}:3: platforms.mattermost.uri: unknown key; did you mean url?\n",
    )


def test_its_own_tests_pass(mattermost: Path, tmp_path: Path) -> None:
    """The conformance suite, as its author runs it: with nothing of our tests on the path."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", "tests"]
    env = environment(tmp_path, mattermost)
    done = subprocess.run(command, cwd=EXAMPLE, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:]


# ── broken ones ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("raise RuntimeError('born\\nbroken')\n", "RuntimeError: born broken"),
        (
            GOOD + "INTEGRATION = Integration(name='odd', platform='.x:make', settings=int)\n",
            "its settings are no PlatformSettings",
        ),
    ],
)
def test_a_broken_package_is_a_line_in_doctor_and_stops_no_other(source: str, why: str, tmp_path: Path) -> None:
    site = broken_package(tmp_path / "site", "odd", source)
    (tmp_path / "config.yaml").write_text(
        "streaming: {odd: true}\nplatforms:\n  odd: {enabled: true, colour: red}\n  telegram: {enabled: true}\n"
    )
    done = tailrace(["doctor", "--offline"], environment(tmp_path, site))
    [line] = [line for line in done.stdout.splitlines() if "integration odd" in line]
    assert line.startswith("✗ the integration odd cannot be")
    assert why in line
    assert "platforms.telegram: TELEGRAM_BOT_TOKEN is not set" in done.stdout, "the others are checked"


def test_parts_that_fail_later_are_lines_too(tmp_path: Path) -> None:
    """The package itself loads; its adapter, its command and its checks do not."""
    source = GOOD + (
        "from tailrace.plugins import CliCommand\n"
        "INTEGRATION = Integration(name='odd', title='Odd', settings=PlatformSettings, platform='tailrace_odd:make',\n"
        "    checks='tailrace_odd:no_such_check', commands={'odd': CliCommand('odd', 'no_such_module')})\n"
        "def make(config):\n    raise KeyError('colour')\n"
    )
    env = environment(tmp_path, broken_package(tmp_path / "site", "odd", source))
    (tmp_path / "config.yaml").write_text("platforms: {odd: {enabled: true, allow: ['*']}}\n")
    report = tailrace(["doctor"], {**env, "NO_PROXY": "*"}).stdout
    assert "✗ platforms.odd: Odd failed: KeyError: 'colour'" in report
    assert "✗ Odd cannot be loaded: AttributeError" in report
    done = tailrace(["odd"], env)
    assert done.returncode == 1
    assert done.stderr == "error: Odd cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'\n"


async def test_a_server_starts_without_a_broken_package_and_logs_it(tmp_path: Path) -> None:
    """Its package raises, its routes cannot be loaded, its adapter is not there: three lines, and the server serves."""
    site = broken_package(tmp_path / "site", "odd", "raise RuntimeError('born broken')\n")
    routes = (
        "INTEGRATION = Integration(name='lost', title='Lost', settings=PlatformSettings, platform='.adapter:make',\n"
    )
    broken_package(site, "lost", GOOD + routes + "    routes='.endpoint:routes')\n")
    (tmp_path / "config.yaml").write_text(
        "platforms: {odd: {enabled: true}, lost: {enabled: true}}\nserver: {port: 0, drain_s: 1}\n"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tailrace", "serve"),
        env=environment(tmp_path, site),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    async with asyncio.timeout(60):
        address = (await process.stdout.readline()).decode().rpartition(" ")[2].strip()
        async with aiohttp.ClientSession() as client, client.get(f"{address}/healthz") as response:
            assert response.status == 200
        process.terminate()
        _, log = await process.communicate()
    assert process.returncode == 0
    lines = log.decode().splitlines()
    assert sum("the integration odd cannot be loaded: RuntimeError: born broken" in line for line in lines) == 1
    assert sum("lost is not started" in line for line in lines) == 1
    assert sum("its routes are not served: Lost cannot be loaded: ModuleNotFoundError" in line for line in lines) == 1


def test_commands_about_chats_name_what_is_wrong_with_a_package(tmp_path: Path) -> None:
    env = environment(tmp_path, broken_package(tmp_path / "site", "odd", "raise RuntimeError('born broken')\n"))
    (tmp_path / "config.yaml").write_text("platforms: {odd: {enabled: true}}\n")
    why = "the integration odd cannot be loaded: RuntimeError: born broken"
    gateway = tailrace(["gateway"], env)
    assert gateway.returncode == 1
    assert f"config.yaml:1: platforms: no platform is enabled that can be used: {why}\n" in gateway.stderr
    add = tailrace(["add", "odd"], env)
    assert add.returncode == 2
    assert add.stderr.endswith(f"error: argument platform: {why}\n")
