"""Whole values against their schemas: small ones at once, all others in a process of their own, with a deadline (L140).

Owns the decision which is which. It is made from the sizes of schema and value, before any work. The process earns its
place, measured with jsonschema-rs: three branches that refer to their own root take more than 20 s for a value of 16
levels, 200 branches as long for 2,000 items, and a value of 20,000 levels ends the process with a segmentation fault.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import msgspec

from tailrace.errors import TailraceError
from tailrace.flows.schema.extract import json_in, read_answer
from tailrace.flows.schema.schema import Schema
from tailrace.system.child_process import ChildFailed, run_in_child
from tailrace.values.schema_cost import value_size

CHECK_S: Final = 10.0
INLINE_COST: Final = 50_000  # parts of the schema times parts of the value: some milliseconds
INLINE_PARTS: Final = 500  # of a schema
INLINE_CHARS: Final = 50_000  # of an answer


class NotChecked(TailraceError):
    """The check took longer than it may, or could not be made."""


async def load_schema(source: Any) -> Schema:
    """The schema; a large one is read in a thread. Raises `SchemaError`."""
    if value_size(source, INLINE_PARTS) <= INLINE_PARTS:
        return Schema(source)
    return await asyncio.to_thread(Schema, source)


async def value_errors(schema: Schema, value: Any, *, timeout_s: float = CHECK_S) -> list[str]:
    """What is wrong with the value, at most a few things; empty when it is valid. Raises `NotChecked`."""
    if is_cheap(schema, value):
        return schema.errors(value)
    return await _in_child([schema.source, value], timeout_s)


async def answer_in(text: str, schema: Schema, *, timeout_s: float = CHECK_S) -> tuple[Any, list[str]]:
    """The value in a model's answer and what is wrong with it. Raises `NotChecked`."""
    if len(text) <= INLINE_CHARS:
        value, problems = json_in(text, schema)
        return value, problems or await value_errors(schema, value, timeout_s=timeout_s)
    if problems := await _in_child([schema.source, None, text], timeout_s):
        return None, problems
    return await asyncio.to_thread(json_in, text, schema)


def is_cheap(schema: Schema, value: Any) -> bool:
    """Whether the check is a matter of milliseconds."""
    if schema.cost.recursive and isinstance(value, dict | list):
        return False
    most = INLINE_COST // schema.cost.parts
    return value_size(value, most) <= most


async def _in_child(given: list[Any], timeout_s: float) -> list[str]:
    try:
        payload = msgspec.json.encode(given)
    except (ValueError, OverflowError):  # half a surrogate pair, a number past 64 bits
        payload = json.dumps(given).encode()
    try:
        return msgspec.json.decode(await run_in_child(checked, payload, timeout_s=timeout_s), type=list[str])
    except ChildFailed as exc:
        raise NotChecked(f"it cannot be checked: {exc}") from exc


def checked(payload: bytes) -> bytes:
    """The child's part: a schema with a value or with an answer in, the problems out."""
    source, value, *text = json.loads(payload)
    schema = Schema(source)
    return msgspec.json.encode(read_answer(text[0], schema)[1] if text else schema.errors(value))
