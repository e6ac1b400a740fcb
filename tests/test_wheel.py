"""The wheel, in an empty environment with what it declares and nothing else: it starts, and serves its page.

No index is asked: the distributions that this environment has are linked into the other one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
import venv
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILD = "import sys; from flit_core.buildapi import build_wheel; print(build_wheel(sys.argv[1]))"


def run(*command: object, cwd: Path) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def required_by(found: Distribution) -> list[Distribution]:
    """The distributions that it needs on this machine, without its extras."""
    from packaging.requirements import Requirement

    needed = [Requirement(line) for line in found.requires or ()]
    needed = [each for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
    for each in needed:
        assert each.specifier.contains(distribution(each.name).version, prereleases=True), each
    return [distribution(each.name) for each in needed]


def declared_closure(site_packages: Path) -> list[Distribution]:
    found: dict[str, Distribution] = {}
    to_see = required_by(wheel_metadata(site_packages))
    while to_see:
        each = to_see.pop()
        if each.name not in found:
            found[each.name] = each
            to_see += required_by(each)
    return list(found.values())


def wheel_metadata(site_packages: Path) -> Distribution:
    [found] = Distribution.discover(name="tailrace", path=[str(site_packages)])
    return found


def link(found: Distribution, site_packages: Path) -> None:
    for name in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
        if not (site_packages / name).exists():
            (site_packages / name).symlink_to(Path(str(found.locate_file(name))))


def environment(directory: Path) -> Path:
    """An environment with the wheel in it."""
    pytest.importorskip("flit_core")
    wheel = directory / run(sys.executable, "-c", BUILD, directory, cwd=ROOT).strip()
    venv.create(directory / "venv", symlinks=True)
    python = directory / "venv/bin/python"
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    run(*pip, "install", "-q", "--no-index", "--no-deps", "--no-compile", wheel, cwd=directory)
    [site_packages] = (directory / "venv/lib").glob("python*/site-packages")
    try:
        for found in declared_closure(site_packages):
            link(found, site_packages)
    except PackageNotFoundError as exc:
        pytest.skip(f"this environment lacks what the wheel declares: {exc}")
    return directory / "venv"


def test_a_wheel_in_an_empty_environment_serves_the_page_and_the_schema(tmp_path: Path) -> None:
    made = environment(tmp_path)
    told = run(made / "bin/python", "-c", "import tailrace; print(tailrace.__file__)", cwd=tmp_path)
    assert Path(told.strip()).is_relative_to(made.resolve()), "the wheel's own, not the checkout's"
    version = distribution("tailrace").version
    assert run(made / "bin/tailrace", "--version", cwd=tmp_path) == f"tailrace {version}\n"
    check_served(made, tmp_path)


def check_served(made: Path, home: Path) -> None:
    command = [str(made / "bin/tailrace"), "serve", "--port", "0"]
    variables = {"PATH": os.environ["PATH"], "HOME": str(home), "TAILRACE_HOME": str(home)}
    (home / "config.yaml").write_text("model: {provider: ollama, name: none}\n", encoding="utf-8")
    with subprocess.Popen(
        command, env=variables, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().split()[-1]
            for path, word in {"/": "<html", "/openapi.json": "openapi", "/metrics": "tailrace_runs_total"}.items():
                with urllib.request.urlopen(address + path, timeout=60) as response:  # noqa: S310 - loopback
                    assert word in response.read().decode().lower()
        finally:
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in err) == (0, False), err
