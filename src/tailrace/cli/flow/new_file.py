"""`tailrace flow new`: a first sequence to change, and the schema by which an editor helps with it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tailrace.errors import ConfigError

SCHEMA_FILE: Final = "flow.schema.json"
_FIRST: Final = """\
# yaml-language-server: $schema=./{schema}
name: {name}
description: A draft about a topic, then a shorter version of it.
input_schema:
  type: object
  properties: {{topic: {{type: string}}}}
  required: [topic]
blocks:
  - type: step
    id: draft
    handler: llm_call
    params: {{prompt: "Write three sentences about {{{{input.topic}}}}.", stream: true}}
    retry: {{max_attempts: 3, initial_backoff: 500ms}}
  - type: step
    id: short
    handler: llm_call
    params: {{prompt: "In one sentence: {{{{steps.draft.output.message.content}}}}", stream: true}}
    retry: {{max_attempts: 3, initial_backoff: 500ms}}
"""


def write_first_flow(name: str, schema: bytes) -> Path:
    """Raises `ConfigError` where the file is there, or cannot be written."""
    path = Path(name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(_FIRST.format(name=path.stem, schema=SCHEMA_FILE))
        (path.parent / SCHEMA_FILE).write_bytes(schema)
    except FileExistsError as exc:
        raise ConfigError("is there already; take another name", file=str(path)) from exc
    except OSError as exc:
        raise ConfigError(f"cannot be written: {exc.strerror}", file=str(path)) from exc
    return path
