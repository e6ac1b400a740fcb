"""The tools of MCP servers (the Model Context Protocol), from the config, as tools of the agent.

Each is named `<server>__<tool>`. What a server says of its own tools is believed as far as its hints go: one that only
reads runs without asking, any other counts as acting outside this machine. A server that crashed is one failed call,
and is connected anew at the next.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import mimetypes
import re
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import msgspec

from tailrace.config.sections import McpServer
from tailrace.errors import ConfigError
from tailrace.messages import READABLE_IMAGES, JsonObject, ToolFile, ToolSpec
from tailrace.ports import Effect, Tool, ToolContext, ToolOutcome
from tailrace.schema_cost import schema_cost, value_size
from tailrace.system.extras import install_command
from tailrace.tools.typed import clipped, failed, preview_of

if TYPE_CHECKING:
    import mcp_types
    from jsonschema_rs import Validator

    from tailrace.tools.mcp.link import Link

MAX_CHARS: Final = 50_000
MAX_CHECK_COST: Final = 100_000  # parts of the schema times parts of the arguments: some milliseconds (L140)
MAX_PATTERN_BYTES: Final = 1_000_000  # of a pattern's program
MAX_NAME_CHARS: Final = 64  # the least that every provider takes
_SERVER_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,30}")


class McpServers:
    """The servers of the config. Connected when their tools are first asked for, let go when the block is left."""

    def __init__(
        self,
        servers: Mapping[str, McpServer],
        *,
        environment: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`environment` is where `key_env` and `env_allow` are looked up. `headers` go with every request to a `url`.
        Raises `ConfigError`."""
        for name, settings in servers.items():
            _check(name, settings, environment)
        self._links: dict[str, Link] = _links(servers, environment, headers) if servers else {}
        self.problems: dict[str, str] = {}  # by server: why not all of its tools are there

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(link.close() for link in self._links.values()))

    async def tools(self) -> dict[str, Tool]:
        """The tools of every server that can be reached; the others are in `problems`, and tried again next time."""
        async with asyncio.TaskGroup() as group:
            listings = [(link, group.create_task(self._listed(link))) for link in self._links.values()]
        tools: dict[str, Tool] = {}
        for link, listing in listings:
            for described in listing.result():
                tool = McpTool(link, described)
                tools[tool.spec.name] = tool
        return tools

    async def _listed(self, link: Link) -> list[mcp_types.Tool]:
        from tailrace.tools.mcp.link import McpFailed

        try:
            tools, left_out = await link.tools()
        except McpFailed as exc:
            self.problems[link.name] = str(exc)
            return []
        self.problems.pop(link.name, None)
        if left_out:
            self.problems[link.name] = left_out
        return tools


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
        from tailrace.tools.mcp.link import McpFailed

        try:
            result = await self._link.call(self._name, args, context)
        except McpFailed as exc:
            return failed(str(exc))
        files = files_of(result, self._name)
        return ToolOutcome(clipped(text_of(result), MAX_CHARS), not result.is_error, files)


def offered_name(server: str, tool: str) -> str:
    """The name that a model sees: letters, digits, `_` and `-` alone, and no longer than providers take."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", f"{server}__{tool}")
    if plain == f"{server}__{tool}" and len(plain) <= MAX_NAME_CHARS:
        return plain
    mark = hashlib.sha256(tool.encode()).hexdigest()[:6]  # what was changed must not meet another tool's name
    return f"{plain[: MAX_NAME_CHARS - 7]}_{mark}"


def text_of(result: mcp_types.CallToolResult) -> str:
    """What the model reads of a result. What is no text is named: the user gets it as a file."""
    parts = [_part(block) for block in result.content]
    if not parts and result.structured_content is not None:
        parts = [msgspec.json.encode(result.structured_content).decode()]
    return "\n".join(parts) or "(done)"


def _part(block: mcp_types.ContentBlock) -> str:
    from mcp_types import AudioContent, EmbeddedResource, ImageContent, ResourceLink, TextContent, TextResourceContents

    match block:
        case TextContent(text=text):
            return text
        case ImageContent(mime_type=kind) | AudioContent(mime_type=kind):
            return f"[{kind}]" if kind in READABLE_IMAGES else f"[{kind}: given to the user, not readable here]"
        case ResourceLink(name=name, uri=uri):
            return f"[{name}: {uri}]"
        case EmbeddedResource(resource=TextResourceContents(text=text)):
            return text
        case EmbeddedResource(resource=resource):
            return f"[{resource.uri}: given to the user, not readable here]"


def files_of(result: mcp_types.CallToolResult, tool: str) -> tuple[ToolFile, ...]:
    """The images, recordings and binary resources of a result. What is not valid base64 is left out."""
    from mcp_types import AudioContent, BlobResourceContents, EmbeddedResource, ImageContent

    files: list[ToolFile] = []
    for block in result.content:
        match block:
            case ImageContent(data=encoded, mime_type=kind) | AudioContent(data=encoded, mime_type=kind):
                suffix = mimetypes.guess_extension(kind) or ""
                name = f"{re.sub(r'[^A-Za-z0-9_-]', '_', tool)[:MAX_NAME_CHARS]}-{len(files) + 1}{suffix}"
            case EmbeddedResource(resource=BlobResourceContents(blob=encoded, mime_type=given, uri=uri)):
                kind = given or "application/octet-stream"
                name = _file_name(str(uri))
            case _:
                continue
        with suppress(binascii.Error, ValueError):
            files.append(ToolFile(name, kind, base64.b64decode(encoded, validate=True)))
    return tuple(files)


def _file_name(uri: str) -> str:
    """The end of a resource's address, as far as a chat can show it. A `data:` address has its content there."""
    name = "file" if uri.startswith("data:") else uri.rstrip("/").rpartition("/")[2]
    return "".join(char if char.isprintable() else "_" for char in name[-MAX_NAME_CHARS:]) or "file"


def _check(name: str, settings: McpServer, environment: Mapping[str, str]) -> None:
    key = f"mcp.servers.{name}"
    if not _SERVER_NAME.fullmatch(name):
        raise ConfigError("a server's name is made of letters, digits, _ and -, at most 30", key=key)
    if bool(settings.command) == (settings.url is not None):
        raise ConfigError("give either command or url", key=key)
    if settings.key_env is not None and settings.url is None:
        raise ConfigError("key_env goes with url; a program gets its key by env_allow", key=key)
    if settings.key_env is not None and not environment.get(settings.key_env, "").strip():
        raise ConfigError(f"{settings.key_env} is not set in the environment", key=f"{key}.key_env")


def _links(
    servers: Mapping[str, McpServer], environment: Mapping[str, str], headers: Mapping[str, str] | None
) -> dict[str, Link]:
    try:
        from tailrace.tools.mcp.link import Link
    except ModuleNotFoundError as exc:
        raise ConfigError(f"MCP servers need an extra: {install_command('mcp')}", key="mcp.servers") from exc
    return {name: Link(name, settings, environment, headers) for name, settings in servers.items()}


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
