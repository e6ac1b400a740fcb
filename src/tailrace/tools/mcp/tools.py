"""One tool of an MCP server as a tool of the agent, named `<server>__<tool>`.

What a server says of its own tools is believed as far as its hints go: one that only reads runs without asking, any
other counts as acting outside this machine.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

import msgspec

from tailrace.messages import JsonObject, ToolSpec
from tailrace.ports import Effect, ToolContext, ToolOutcome
from tailrace.tools.mcp.content import MAX_CHARS, MAX_NAME_CHARS, files_of, text_of
from tailrace.tools.typed import clipped, failed, preview_of
from tailrace.values.schema_cost import schema_cost, value_size

if TYPE_CHECKING:
    import mcp_types
    from jsonschema_rs import Validator

    from tailrace.tools.mcp.link import Link

MAX_CHECK_COST: Final = 100_000  # parts of the schema times parts of the arguments: some milliseconds (L140)
MAX_PATTERN_BYTES: Final = 1_000_000  # of a pattern's program


class McpTool:
    """One tool of one server."""

    def __init__(self, link: Link, described: mcp_types.Tool) -> None:
        hints = described.annotations
        self._link = link
        self._name = described.name
        self._reads_only = bool(hints and hints.read_only_hint)
        self.repeatable = self._reads_only or bool(hints and hints.idempotent_hint)
        self.parallel = self._reads_only
        self.spec = ToolSpec(
            offered_name(link.name, described.name), described.description or "", dict(described.input_schema)
        )
        self._validator: Validator | None = None  # made for the first call
        self._cost = schema_cost(self.spec.parameters)

    def invalid(self, args: JsonObject) -> str:
        """Where the check could take long, by the sizes of the schema and the arguments, the server alone makes it."""
        if self._cost.recursive or self._cost.parts * value_size(args, MAX_CHECK_COST) > MAX_CHECK_COST:
            return ""
        self._validator = self._validator or _validator(self.spec.parameters)
        return _invalid(self._validator, args)

    def preview(self, args: JsonObject) -> str:
        return preview_of(args)

    def effect(self, args: JsonObject) -> Effect:
        if self._reads_only:
            return Effect()
        return Effect("external", f"{self.spec.name} {msgspec.json.encode(args).decode()}")

    async def run(self, args: JsonObject, context: ToolContext) -> ToolOutcome:
        from tailrace.tools.mcp.connection import McpFailed

        try:
            result = await self._link.call(self._name, args, context, again=self.repeatable)
        except McpFailed as exc:
            return failed(str(exc))
        files = files_of(result.content, self._name)
        return ToolOutcome(clipped(text_of(result), MAX_CHARS), not result.is_error, files)


def offered_name(server: str, tool: str) -> str:
    """The name that a model sees: letters, digits, `_` and `-` alone, and no longer than providers take."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", f"{server}__{tool}")
    if plain == f"{server}__{tool}" and len(plain) <= MAX_NAME_CHARS:
        return plain
    mark = hashlib.sha256(tool.encode()).hexdigest()[:6]  # what was changed must not meet another tool's name
    return f"{plain[: MAX_NAME_CHARS - 7]}_{mark}"


def _validator(schema: JsonObject) -> Validator | None:
    """Checks arguments by the server's schema, which may refer to nothing outside itself; None where it is no schema:
    then the server alone checks them."""
    from jsonschema_rs import ReferencingError, RegexOptions, ValidationError, validator_for

    try:
        return validator_for(schema, pattern_options=RegexOptions(size_limit=MAX_PATTERN_BYTES), offline=True)
    except (ValidationError, ReferencingError, ValueError):
        return None


def _invalid(validator: Validator | None, args: JsonObject) -> str:
    try:
        error = next(validator.iter_errors(args), None) if validator else None
    except ValueError as exc:  # half a surrogate pair
        return f"Invalid arguments: {exc}"
    if error is None:
        return ""
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path)
    return f"Invalid arguments: {error.message} - at `${path}`"
