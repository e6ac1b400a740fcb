"""`tailrace import hermes [DIR]`: the settings of a Hermes home as a config here; says what has no counterpart.

Hermes' files stay as they are, and no key is copied: the config names the variables.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import yaml

from tailrace.cli.main import DONE, FAILED, print_error
from tailrace.cli.setup.config_file import copied_aside, write_config
from tailrace.cli.setup.hermes_config import HermesImport
from tailrace.config.env_file import FILE_NAME, read_env_file
from tailrace.config.load import CONFIG_FILE, home_directory, load
from tailrace.errors import ConfigError
from tailrace.messages import JsonObject
from tailrace.system.own_program import typed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", metavar="hermes", choices=("hermes",), help="whose settings")
    parser.add_argument("directory", nargs="?", metavar="DIR", help="its home; $HERMES_HOME, else ~/.hermes")
    parser.add_argument("--force", action="store_true", help="replace an existing config; a copy of it is kept")


def run(args: argparse.Namespace) -> int:
    """0 written, 1 there is no such home or a config is there already. Raises `ConfigError` for an unreadable file."""
    home = Path(args.directory or os.environ.get("HERMES_HOME") or "~/.hermes").expanduser()
    source, target = home / "config.yaml", home_directory(os.environ) / CONFIG_FILE
    if not source.exists():
        print_error(f"there is no {source}; name the home of Hermes: tailrace import hermes DIR")
        return FAILED
    if target.exists() and not args.force:
        print_error(f"{target} is there already; --force replaces it and keeps a copy")
        return FAILED
    found = HermesImport(_read(source), read_env_file(home / ".env"))
    text = f"# From {source}\n{yaml.safe_dump(found.config, sort_keys=False, allow_unicode=True)}"
    _check(text)
    if target.exists():
        sys.stderr.write(f"kept the old one as {copied_aside(target)}\n")
    write_config(target, text)
    sys.stderr.write(f"wrote {target}\n")
    if variables := found.used_variables():
        kept = target.with_name(FILE_NAME)
        sys.stderr.write(f"export {', '.join(variables)}, or copy that from {home / '.env'} to {kept}\n")
    sys.stderr.writelines(f"{note}\n" for note in found.notes)
    if left_out := list(found.left_out()):
        sys.stderr.write(f"no counterpart: {', '.join(left_out)}\n")
    sys.stderr.write(f"next: {typed('doctor')}\n")
    return DONE


def _read(file: Path) -> JsonObject:
    try:
        settings = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as exc:
        raise ConfigError(f"cannot be read: {exc}".partition("\n")[0], file=str(file)) from exc
    if not isinstance(settings, dict):
        raise ConfigError("expected a mapping", file=str(file))
    return settings


def _check(text: str) -> None:
    """Raises `ConfigError` where the config would not load."""
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / CONFIG_FILE).write_text(text, encoding="utf-8")
        try:
            load(os.environ, Path(directory))
        except ConfigError as exc:
            raise ConfigError(f"{exc.message}; nothing was written", key=exc.key) from exc
