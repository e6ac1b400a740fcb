"""`make dist`: a wheel that pip takes on each Python that is here, and whose command starts from an environment of its
own, as `pipx run` starts it."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from cli.commands.command_line import environment
from tailrace.testing.provider import FaultyProvider, reply

ROOT = Path(__file__).parents[3]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the command of the Makefile, from a copy: `build/` of the checkout stays as it is."""
    recipe = re.search(r"^dist:.*\n\t@\$\(BIN\)/python -m (.+) dist \.$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    place = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", *recipe[1].split(), str(place), str(ROOT)], check=True)
    [made] = place.glob("*.whl")
    return made


def python_of(version: str) -> str | None:
    """The Python of this version that runs; None where there is none."""
    found = shutil.which(f"python{version}")
    if found is None:
        return None
    ran = subprocess.run([found, "-c", "import ensurepip"], capture_output=True, check=False)
    return found if ran.returncode == 0 else None


def installed(python: str, wheel: Path, place: Path) -> Path:
    """The environment's directory of commands."""
    subprocess.run([python, "-m", "venv", str(place)], check=True)
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "-qq", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(pip, check=True)
    return place / "bin"


@pytest.mark.parametrize("version", VERSIONS)
def test_pip_takes_the_wheel(wheel: Path, tmp_path: Path, version: str) -> None:
    if (python := python_of(version)) is None:
        pytest.skip(f"there is no Python {version} here")
    commands = installed(python, wheel, tmp_path / "env")
    assert (commands / "tailrace").exists()
    compiled = [str(commands / "python"), "-m", "compileall", "-q", str(tmp_path / "env")]
    assert subprocess.run(compiled, capture_output=True, check=False).stdout == b"", "each module is valid there"


def test_the_wheel_has_what_is_no_python_too(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    there = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "tailrace" / "server" / "web").rglob("*")}
    packed_page = {name for name in names if name.startswith("tailrace/server/web/")}
    assert packed_page == {name for name in there if (ROOT / "src" / name).is_file() and "__pycache__" not in name}
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith("tests")]


def test_the_wheel_has_the_licence_of_each_library_of_the_page(wheel: Path) -> None:
    vendor = "tailrace/server/web/vendor/"
    files = {
        "@highlightjs/cdn-assets": ("highlightjs", "highlight.js"),
        "lucide-static": ("lucide-static", "icons.svg"),
    }
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        licences = {name: packed.read(name).decode() for name in names if "/licenses/" in name}
        libraries = json.loads(packed.read(f"{vendor}versions.json"))
        metadata = packed.read(next(name for name in names if name.endswith(".dist-info/METADATA"))).decode()
    assert len(libraries) == 5
    for library in libraries:
        licence, file = files.get(library, (library, f"{library}.js"))
        assert vendor + file in names
        [(where, text)] = [each for each in licences.items() if each[0].endswith(f"LICENSE-{licence}.txt")]
        assert "copyright" in text.lower(), library
        assert f"License-File: {where.partition('/licenses/')[2]}\n" in metadata
    beside = {name.removeprefix(vendor) for name in names if name.startswith(vendor) and not name.endswith(".txt")}
    known = {files.get(library, (library, f"{library}.js"))[1] for library in libraries}
    assert beside == known | {"versions.json"}, "a file of others comes with its licence"


async def test_the_command_of_the_wheel_answers_a_question(wheel: Path, tmp_path: Path) -> None:
    commands = installed(sys.executable, wheel, tmp_path / "env")
    async with FaultyProvider([reply("From the wheel.")]) as server:
        home = tmp_path / "home"
        home.mkdir()
        config = {
            "model": {"provider": "faulty", "name": "ok"},
            "providers": {"faulty": {"dialect": "chat", "base_url": server.openai_url}},
        }
        (home / "config.yaml").write_text(json.dumps(config))
        libraries = sysconfig.get_path("purelib")  # of the test's environment: no index is asked
        variables = environment(home, PYTHONPATH=libraries)
        done = await asyncio.to_thread(
            subprocess.run,
            [str(commands / "tailrace"), "-q", "Where from?"],
            env=variables,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        told = [str(commands / "python"), "-c", "import tailrace; print(tailrace.__file__)"]
        where = await asyncio.to_thread(subprocess.check_output, told, env=variables, cwd=tmp_path, text=True)
    assert (done.returncode, done.stdout) == (0, "From the wheel.\n"), done.stderr
    assert where.startswith(str(tmp_path))
