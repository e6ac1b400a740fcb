"""`tailrace flow new`: a first sequence to change, and the schema by which an editor helps with it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tailrace.errors import ConfigError

SCHEMA_FILE: Final = "flow.schema.json"
_FIRST: Final = Path(__file__).with_name("first_flow.yaml")


def write_first_flow(name: str, schema: bytes) -> Path:
    """Raises `ConfigError` where the file is there, or cannot be written."""
    path = Path(name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(_FIRST.read_text(encoding="utf-8").replace("NAME", path.stem, 1))
        (path.parent / SCHEMA_FILE).write_bytes(schema)
    except FileExistsError as exc:
        raise ConfigError("is there already; take another name", file=str(path)) from exc
    except OSError as exc:
        raise ConfigError(f"cannot be written: {exc.strerror}", file=str(path)) from exc
    return path
