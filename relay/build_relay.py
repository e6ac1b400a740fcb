"""Builds tailrace-relay: one C file, compiled against the stable ABI, in one wheel a platform (PEP 517).

A backend of its own, because an extension of one file needs no other build tool: nothing is downloaded."""

from __future__ import annotations

import base64
import hashlib
import os
import shlex
import subprocess
import sysconfig
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PROJECT = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NAME = f"tailrace_relay-{PROJECT['version']}"
MODULE = "tailrace_relay"
TAG = f"cp311-abi3-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
METADATA = f"""Metadata-Version: 2.4
Name: {PROJECT["name"]}
Version: {PROJECT["version"]}
Summary: {PROJECT["description"]}
License-Expression: {PROJECT["license"]}
Requires-Python: {PROJECT["requires-python"]}
"""
WHEEL = f"Wheel-Version: 1.0\nGenerator: build_relay\nRoot-Is-Purelib: false\nTag: {TAG}\n"
_Settings = dict[str, Any] | None


def compile_module(directory: Path) -> Path:
    """Raises `CalledProcessError`, or `FileNotFoundError` where there is no compiler. CC and CFLAGS as usual."""
    made = directory / f"{MODULE}.abi3.so"
    compiler = shlex.split(os.environ.get("CC", "cc"))
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", *shlex.split(os.environ.get("CFLAGS", ""))]
    include = f"-I{sysconfig.get_paths()['include']}"
    command = [*compiler, "-shared", "-fPIC", "-fvisibility=hidden", *flags, include]
    subprocess.run([*command, str(HERE / f"{MODULE}.c"), "-o", str(made)], check=True)
    return made


def build_wheel(wheel_directory: str, config_settings: _Settings = None, metadata_directory: str | None = None) -> str:
    files = {f"{NAME}.dist-info/METADATA": METADATA.encode(), f"{NAME}.dist-info/WHEEL": WHEEL.encode()}
    with tempfile.TemporaryDirectory() as directory:
        made = compile_module(Path(directory))
        files = {made.name: made.read_bytes()} | files
    record = f"{NAME}.dist-info/RECORD"
    lines = [f"{name},sha256={_hash(data)},{len(data)}\n" for name, data in files.items()]
    files[record] = "".join([*lines, f"{record},,\n"]).encode()
    wheel = f"{NAME}-{TAG}.whl"
    with zipfile.ZipFile(Path(wheel_directory, wheel), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return wheel


def build_sdist(sdist_directory: str, config_settings: _Settings = None) -> str:
    name = f"{NAME}.tar.gz"
    with tarfile.open(Path(sdist_directory, name), "w:gz") as archive:
        for path in sorted(HERE.glob("*.*")):
            archive.add(path, f"{NAME}/{path.name}")
        with tempfile.NamedTemporaryFile() as metadata:
            Path(metadata.name).write_text(METADATA, encoding="utf-8")
            archive.add(metadata.name, f"{NAME}/PKG-INFO")
    return name


def _hash(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
