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


ROUTE = "from tailrace.server.http.route import Route\ndef routes(pipeline): "
ADAPTER = (
    "from tailrace.delivery.port import Platform\n"
    "class Settings(PlatformSettings):\n    def account_id(self, token): raise KeyError('account')\n"
    "class Adapter(Platform):\n    hook_path = ''\n    def __init__(self, config): pass\n    name = "
)
# By name: the source of a package, the fields of its `Integration`, and the line of the log.
BROKEN = {
    "raises": ("raise RuntimeError('born broken')\n", "", "raises cannot be loaded: RuntimeError: born broken"),
    "exits": ("raise SystemExit(3)\n", "", "the integration exits cannot be loaded: SystemExit: 3"),
    "nocommands": ("", "commands=None", "the integration nocommands cannot be used: its commands: Expected"),
    "noclass": ("", "settings=PlatformSettings()", "the integration noclass cannot be used: its settings are no class"),
    "noadapter": (
        "",
        "settings=PlatformSettings, platform='.adapter:make'",
        "noadapter is not started: {config}:2: platforms.noadapter: noadapter cannot be loaded: ModuleNotFoundError",
    ),
    "noplatform": (
        "def make(config): return None\n",
        "settings=PlatformSettings, platform='tailrace_noplatform:make'",
        "noplatform is not started: {config}:2: platforms.noplatform: tailrace_noplatform:make returned None, which is",
    ),
    "noaccount": (
        ADAPTER + "'noaccount'\n",
        "settings=Settings, platform='tailrace_noaccount:Adapter'",
        "noaccount is not started: {config}:2: platforms.noaccount: noaccount failed: KeyError: 'account'",
    ),
    "nohook": (
        ADAPTER + "'nohook'\n    hook_path = 'hook'\n",
        "settings=PlatformSettings, platform='tailrace_nohook:Adapter'",
        "nohook is not started: {config}:2: platforms.nohook: its webhook 'hook' is not below /platforms/",
    ),
    "noname": (
        ADAPTER + "property(lambda self: 1 // 0)\n",
        "settings=PlatformSettings, platform='tailrace_noname:Adapter'",
        "noname is not started: {config}:2: platforms.noname: noname failed: ZeroDivisionError",
    ),
    "othername": (
        ADAPTER + "'odd'\n",
        "settings=PlatformSettings, platform='tailrace_othername:Adapter'",
        "othername is not started: {config}:2: platforms.othername: tailrace_othername:Adapter returned <",
    ),
    "nomodule": ("", "routes='.endpoint:routes'", "the routes of nomodule are not served: nomodule cannot be loaded"),
    "failing": (
        ROUTE + "raise KeyError('route')\n",
        "routes='tailrace_failing:routes'",
        "the routes of failing are not served: failing failed: KeyError: 'route'",
    ),
    "noroutes": (
        ROUTE + "return None\n",
        "routes='tailrace_noroutes:routes'",
        "the routes of noroutes are not served: noroutes failed: TypeError: 'NoneType' object is not iterable",
    ),
    "notroutes": (
        ROUTE + "return ['/x']\n",
        "routes='tailrace_notroutes:routes'",
        "the routes of notroutes are not served: notroutes failed: TypeError: tailrace_notroutes:routes returned '/x'",
    ),
    "nopath": (
        ROUTE + "yield Route('GET', 'x', print, 'open')\n",
        "routes='tailrace_nopath:routes'",
        "the routes of nopath are not served: nopath failed: ValueError: path should be started with /",
    ),
}


async def test_a_server_starts_without_broken_packages_and_logs_each(tmp_path: Path) -> None:
    """Each is broken in its own way: each has its line in the log, and the server serves."""
    site = tmp_path / "site"
    for name, (source, fields, _) in BROKEN.items():
        broken_package(site, name, f"{GOOD}{source}INTEGRATION = Integration('{name}', {fields})\n")
    enabled = ", ".join(
        f"{name}: {{enabled: true}}" for name, (_, fields, _) in BROKEN.items() if "settings=" in fields
    )
    (tmp_path / "config.yaml").write_text(f"server: {{port: 0, drain_s: 1}}\nplatforms: {{{enabled}}}\n")
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
    config = tmp_path / "config.yaml"
    expected = {name: line.format(config=config) for name, (_, _, line) in BROKEN.items()}
    assert {name: sum(text in line for line in lines) for name, text in expected.items()} == dict.fromkeys(BROKEN, 1)
    assert sum("platforms: none" in line for line in lines) == 1, "those that were started"


@pytest.mark.parametrize(
    "source", ["raise SystemExit(3)\n", GOOD + "INTEGRATION = Integration('odd', commands=None)\n"]
)
def test_a_broken_package_stops_no_command(source: str, tmp_path: Path) -> None:
    env = environment(tmp_path, broken_package(tmp_path / "site", "odd", source))
    done = tailrace(["--help"], env)
    assert (done.returncode, done.stderr) == (0, "")
    assert "✗ the integration odd cannot be" in tailrace(["doctor", "--offline"], env).stdout


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


def test_doctor_advises_on_an_adapter_that_cannot_be_loaded(tmp_path: Path) -> None:
    source = GOOD + "INTEGRATION = Integration('odd', settings=PlatformSettings, platform='.adapter:make')\n"
    env = environment(tmp_path, broken_package(tmp_path / "site", "odd", source))
    (tmp_path / "config.yaml").write_text("platforms: {odd: {enabled: true, allow: ['*']}}\n")
    lines = tailrace(["doctor", "--offline"], env).stdout.splitlines()
    [at] = [at for at, line in enumerate(lines) if line.startswith("✗ platforms.odd: odd cannot be loaded")]
    assert lines[at + 1].strip() == "repair its package, or uninstall it"
