"""What Anthropic's Messages API refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from proof.strict_provider import fields
from proof.strict_provider.issued import thinking_signature
from proof.strict_provider.wording import extra_input, objects_in, refused
from tailrace.messages import JsonObject
from tailrace.testing.scripted.failures import Failure

_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")


def refusals(body: JsonObject, headers: Mapping[str, str], *, counting: bool) -> Iterator[Failure]:
    yield from _version(headers)
    yield from _fields(body, headers, counting=counting)
    yield from _limits(body, counting=counting)
    yield from _tools(body)
    messages = objects_in(body.get("messages"))
    if not messages:
        yield refused("messages: at least one message is required")
        return
    for at, message in enumerate(messages):
        yield from _message(at, message)
    yield from _pairs(messages)
    yield from _leading_thinking(body, messages)


def _version(headers: Mapping[str, str]) -> Iterator[Failure]:
    version = headers.get("anthropic-version")
    if version is None:
        yield refused("anthropic-version: header is required")
    elif version not in fields.ANTHROPIC_VERSIONS:
        yield refused(f'anthropic-version: "{version}" is not a valid version')


def _fields(body: JsonObject, headers: Mapping[str, str], *, counting: bool) -> Iterator[Failure]:
    known = fields.ANTHROPIC_COUNT if counting else fields.ANTHROPIC
    betas = [value.strip() for value in headers.get("anthropic-beta", "").split(",")]
    for name in body:
        prefixes = fields.ANTHROPIC_BETA.get(name, ())
        if name not in known and not any(beta.startswith(prefixes) for beta in betas if prefixes):
            yield extra_input(name)
    if "thread" in body:
        details: JsonObject = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
        yield msgspec.structs.replace(refused("thread: not supported for this model"), details=details)


def _limits(body: JsonObject, *, counting: bool) -> Iterator[Failure]:
    if not body.get("model"):
        yield refused("model: Field required")
    limit = body.get("max_tokens")
    if counting:
        return
    if limit is None:
        yield refused("max_tokens: Field required")
    elif not isinstance(limit, int) or limit < 0:
        yield refused("max_tokens: Input should be greater than or equal to 1")
    thinking = body.get("thinking")
    if not isinstance(thinking, dict) or thinking.get("type") != "enabled":
        return
    budget = thinking.get("budget_tokens")
    if not isinstance(budget, int) or budget < 1024:
        yield refused("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
    elif isinstance(limit, int) and limit <= budget:
        yield refused("`max_tokens` must be greater than `thinking.budget_tokens`.")
    if body.get("temperature", 1) != 1:
        yield refused("`temperature` may only be set to 1 when thinking is enabled.")


def _tools(body: JsonObject) -> Iterator[Failure]:
    for at, tool in enumerate(objects_in(body.get("tools"))):
        if tool.get("type", "custom") not in ("custom", None):
            continue  # a tool of Anthropic's own
        path = f"tools.{at}.custom"
        yield from (extra_input(f"{path}.{name}") for name in tool if name not in fields.ANTHROPIC_TOOL)
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", str(tool.get("name", ""))):
            yield refused(f"{path}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        form = tool.get("input_schema")
        if not isinstance(form, dict):
            yield refused(f"{path}.input_schema: Field required")
        elif form.get("type") != "object":
            yield refused(f"{path}.input_schema.type: Field required")


def _message(at: int, message: JsonObject) -> Iterator[Failure]:
    yield from (extra_input(f"messages.{at}.{name}") for name in message if name not in fields.ANTHROPIC_MESSAGE)
    if message.get("role") not in ("user", "assistant", "system"):
        yield refused(f"messages.{at}.role: Input should be 'user' or 'assistant'")
    content = message.get("content")
    if content in ("", [], None):
        yield refused(f"messages.{at}: all messages must have non-empty content")
    for index, block in enumerate(_blocks(content)):
        yield from _block(f"messages.{at}.content.{index}", block, str(message.get("role")))


def _block(path: str, block: JsonObject, role: str) -> Iterator[Failure]:
    kind = str(block.get("type"))
    if (known := fields.ANTHROPIC_BLOCKS.get(kind)) is not None:
        yield from (extra_input(f"{path}.{kind}.{name}") for name in block if name not in known)
    match kind:
        case "text" if not str(block.get("text") or ""):
            yield refused("messages: text content blocks must be non-empty")
        case "text" if not str(block["text"]).strip():
            yield refused("messages: text content blocks must contain non-whitespace text")
        case "thinking" if role != "assistant":
            yield refused(f"{path}: thinking blocks may only be in `assistant` messages")
        case "thinking" if block.get("signature") != thinking_signature(str(block.get("thinking"))):
            yield refused(f"{path}: Invalid `signature` in `thinking` block")
        case "tool_use" if not isinstance(block.get("input"), dict):
            yield refused(f"{path}.tool_use.input: Input should be a valid dictionary")
        case "tool_use" if not _CALL_ID.fullmatch(str(block.get("id"))):
            yield refused(f"{path}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
        case "tool_result":
            for index, inner in enumerate(_blocks(block.get("content"), bare=False)):
                yield from _block(f"{path}.tool_result.content.{index}", inner, role)
        case _:
            pass


def _pairs(messages: list[JsonObject]) -> Iterator[Failure]:
    for at, message in enumerate(messages):
        blocks = _blocks(message.get("content"))
        before = _ids(_blocks(messages[at - 1].get("content")), "tool_use", "id") if at else []
        for index, block in enumerate(blocks):
            if block.get("type") == "tool_result" and block.get("tool_use_id") not in before:
                yield refused(
                    f"messages.{at}.content.{index}: unexpected `tool_use_id` found in `tool_result` blocks: "
                    f"{block.get('tool_use_id')}. Each `tool_result` block must have a corresponding `tool_use` "
                    "block in the previous message."
                )
        after = _blocks(messages[at + 1].get("content")) if at + 1 < len(messages) else []
        answered = _ids(after, "tool_result", "tool_use_id")
        if missing := [each for each in _ids(blocks, "tool_use", "id") if each not in answered]:
            yield refused(
                f"messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the "
                "next message."
            )


def _leading_thinking(body: JsonObject, messages: list[JsonObject]) -> Iterator[Failure]:
    """With a fixed budget, a turn that goes on after its tools begins with what was thought before them."""
    thinking = body.get("thinking")
    if not isinstance(thinking, dict) or thinking.get("type") != "enabled":
        return
    last = max((at for at, message in enumerate(messages) if message.get("role") == "assistant"), default=-1)
    kinds = [block.get("type") for block in _blocks(messages[last].get("content"))] if last >= 0 else []
    if "tool_use" in kinds and kinds[0] not in ("thinking", "redacted_thinking"):
        yield refused(
            f"messages.{last}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{kinds[0]}`. "
            "When `thinking` is enabled, a final `assistant` message must start with a thinking block."
        )


def _ids(blocks: list[JsonObject], kind: str, key: str) -> list[str]:
    return [str(block.get(key)) for block in blocks if block.get("type") == kind]


def _blocks(content: Any, *, bare: bool = True) -> list[JsonObject]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if bare and content else []
    return objects_in(content)
