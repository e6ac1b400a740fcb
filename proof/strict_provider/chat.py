"""What OpenAI's Chat Completions API refuses, and the one rule that DeepSeek and Moonshot add to it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from proof.strict_provider import fields
from proof.strict_provider.issued import Issued
from proof.strict_provider.wording import (
    bad_name,
    loose_schema,
    missing_parameter,
    objects_in,
    refused,
    too_long,
    unknown_parameter,
)
from tailrace.messages import JsonObject
from tailrace.testing.scripted.failures import Failure

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
MAX_CALL_ID = 40
_REASONS = re.compile(r"(?:o\d|gpt-5)")  # OpenAI's models that reason


def refusals(body: JsonObject, issued: Issued, *, returns_reasoning: bool) -> Iterator[Failure]:
    yield from (unknown_parameter(name) for name in body if name not in fields.CHAT)
    yield from (missing_parameter(name) for name in ("model", "messages") if not body.get(name))
    yield from too_long("user", body.get("user"), 64)
    yield from too_long("safety_identifier", body.get("safety_identifier"), 128)
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        yield refused(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
            code="invalid_parameter_combination",
        )
    if body.get("max_tokens") is not None and _REASONS.match(str(body.get("model"))):
        yield refused(
            "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead.",
            param="max_tokens",
            code="unsupported_parameter",
        )
    if body.get("stream_options") is not None and body.get("stream") is not True:
        yield refused(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.", param="stream_options"
        )
    yield from _tools(body)
    yield from _format(body)
    messages = objects_in(body.get("messages"))
    yield from _messages(messages)
    yield from _calls_and_results(messages)
    if returns_reasoning:
        yield from _reasoning(messages, issued)


def _tools(body: JsonObject) -> Iterator[Failure]:
    for at, tool in enumerate(objects_in(body.get("tools"))):
        if tool.get("type") == "function":
            function = tool.get("function")
            if not isinstance(function, dict):
                yield missing_parameter(f"tools[{at}].function")
                continue
            yield from bad_name(f"tools[{at}].function.name", function.get("name"))
            if function.get("strict") is True:
                yield from loose_schema(function.get("parameters"), f"tools[{at}].function.parameters")
        elif tool.get("type") != "custom":
            yield refused(
                f"Invalid value: '{tool.get('type')}'. Supported values are: 'function' and 'custom'.",
                param=f"tools[{at}].type",
                code="invalid_value",
            )
    if body.get("tools") == []:
        yield refused(
            "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            param="tools",
            code="empty_array",
        )
    for name in ("tool_choice", "parallel_tool_calls"):
        if body.get(name) is not None and not (body.get("tools") or body.get("functions")):
            yield refused(
                f"Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified.", param=name
            )


def _format(body: JsonObject) -> Iterator[Failure]:
    form = body.get("response_format")
    asked = form.get("json_schema") if isinstance(form, dict) else None
    if isinstance(asked, dict):
        yield from bad_name("response_format.json_schema.name", asked.get("name"))
        if asked.get("strict") is True:
            yield from loose_schema(asked.get("schema"), "response_format")


def _messages(messages: list[JsonObject]) -> Iterator[Failure]:
    for at, message in enumerate(messages):
        if message.get("role") not in _ROLES:
            yield refused(
                f"Invalid value: '{message.get('role')}'. Supported values are: 'system', 'assistant', 'user', "
                "'function', 'tool', and 'developer'.",
                param=f"messages[{at}].role",
                code="invalid_value",
            )
        calls = objects_in(message.get("tool_calls"))
        if message.get("content") is None and not calls and not message.get("function_call"):
            yield refused("Invalid value for 'content': expected a string, got null.", param=f"messages.[{at}].content")
        for index, call in enumerate(calls):
            where = f"messages[{at}].tool_calls[{index}]"
            yield from too_long(f"{where}.id", call.get("id"), MAX_CALL_ID)
            if call.get("type", "function") != "function":
                continue
            function = call.get("function") or {}
            yield from bad_name(f"{where}.function.name", function.get("name"))
            if not isinstance(function.get("arguments"), str):
                yield missing_parameter(f"{where}.function.arguments")


def _calls_and_results(messages: list[JsonObject]) -> Iterator[Failure]:
    unanswered: list[str] = []
    for at, message in enumerate([*messages, {"role": "end"}]):
        if message.get("role") == "tool":
            if message.get("tool_call_id") not in unanswered:
                yield refused(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    "'tool_calls'.",
                    param=f"messages.[{at}].role",
                )
            else:
                unanswered.remove(str(message["tool_call_id"]))
            continue
        if unanswered:
            yield refused(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                "'tool_call_id'. The following tool_call_ids did not have response messages: " + ", ".join(unanswered),
                param=f"messages.[{at}].role",
            )
        unanswered = [str(call.get("id")) for call in objects_in(message.get("tool_calls"))]


def _reasoning(messages: list[JsonObject], issued: Issued) -> Iterator[Failure]:
    for at, message in enumerate(messages):
        for call in objects_in(message.get("tool_calls")):
            thought = issued.reasoning_of_call(str(call.get("id")))
            if thought and message.get("reasoning_content") != thought:
                yield refused(
                    f"Missing `reasoning_content` field in the assistant message at message index {at}."
                    if not message.get("reasoning_content")
                    else f"The `reasoning_content` at message index {at} is not what the model sent."
                )
