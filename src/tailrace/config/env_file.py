"""`$TAILRACE_HOME/env`: secrets for those who do not set variables themselves, `NAME=value` a line.

Read beneath the environment: a variable that is set there wins. Its values are never put into the process's own
environment, so no command that a tool starts sees them. The form is that of systemd's EnvironmentFile.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from tailrace.errors import ConfigError

FILE_NAME: Final = "env"
MAX_BYTES: Final = 1 << 16
_LINE: Final = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")


def read_env_file(file: Path) -> dict[str, str]:
    """Its variables; empty where there is no file. Raises `ConfigError` with the line of a mistake, without its
    text, which may be a secret."""
    try:
        data = file.read_bytes()[: MAX_BYTES + 1]
    except FileNotFoundError:
        return {}
    except OSError as exc:
        place = file if os.path.lexists(file) else file.parent  # of a directory that is closed to us nothing is known
        raise ConfigError(f"cannot be read: {exc.strerror}", file=str(place)) from exc
    if len(data) > MAX_BYTES:
        raise ConfigError(f"larger than {MAX_BYTES} bytes", file=str(file))
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as exc:
        raise ConfigError("not UTF-8 text", file=str(file)) from exc
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if (match := _LINE.fullmatch(line.strip())) is None:
            raise ConfigError("expected NAME=value", file=str(file), line=number)
        found[match[1]] = _unquoted(match[2])
    return found


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value


def with_variable(text: str, name: str, value: str) -> str:
    """The text of the file with this variable set: its line replaced, or a new one at the end."""
    line = f"{name}={value}"
    lines = text.splitlines()
    for at, old in enumerate(lines):
        if (match := _LINE.fullmatch(old.strip())) is not None and match[1] == name:
            lines[at] = line
            break
    else:
        lines.append(line)
    return "\n".join(lines) + "\n"
