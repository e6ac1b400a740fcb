"""What OpenAI's Responses API refuses: above all, items that it did not make."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from proof.strict_provider import fields
from proof.strict_provider.issued import Issued, item_of_encrypted
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

_CALLS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
_CLIENT_ROLES = ("user", "system", "developer")
_PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs", "custom_tool_call": "ctc"}
_ASSISTANT_PARTS = ("output_text", "refusal")
MAX_CALL_ID = 64


def refusals(body: JsonObject, issued: Issued) -> Iterator[Failure]:
    for name in body:
        if name in ("max_tokens", "max_completion_tokens"):
            yield refused(
                f"Unsupported parameter: '{name}'. In the Responses API, this parameter has moved to "
                "'max_output_tokens'.",
                param=name,
                code="unsupported_parameter",
            )
        elif name not in fields.RESPONSES:
            yield unknown_parameter(name)
    yield from too_long("user", body.get("user"), 64)
    yield from too_long("safety_identifier", body.get("safety_identifier"), 64)
    yield from too_long("prompt_cache_key", body.get("prompt_cache_key"), 64)
    yield from _tools(body)
    yield from _format(body)
    previous = body.get("previous_response_id")
    if previous is not None and not issued.knows_response(str(previous)):
        yield refused(
            f"Previous response with id '{previous}' not found.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
        return
    items = objects_in(body.get("input"))
    for at, item in enumerate(items):
        yield from _item(at, item)
        yield from _own(item, issued)
    yield from _neighbours(items, issued)
    yield from _calls_and_results(issued.whole_input(body))


def _tools(body: JsonObject) -> Iterator[Failure]:
    for at, tool in enumerate(objects_in(body.get("tools"))):
        if tool.get("type") != "function":
            continue
        if "name" not in tool:
            yield missing_parameter(f"tools[{at}].name")
            continue
        yield from (unknown_parameter(f"tools[{at}].{name}") for name in tool if name not in fields.RESPONSES_FUNCTION)
        yield from bad_name(f"tools[{at}].name", tool["name"])
        if tool.get("strict") is True:
            yield from loose_schema(tool.get("parameters"), f"tools[{at}].parameters")


def _format(body: JsonObject) -> Iterator[Failure]:
    text = body.get("text")
    form = text.get("format") if isinstance(text, dict) else None
    if isinstance(form, dict) and form.get("type") == "json_schema":
        yield from bad_name("text.format.name", form.get("name"))
        if form.get("strict") is True:
            yield from loose_schema(form.get("schema"), "text.format.schema")


def _item(at: int, item: JsonObject) -> Iterator[Failure]:
    kind = str(item.get("type", "message"))
    known = fields.RESPONSES_ITEMS.get(kind)
    if known is not None:
        yield from (unknown_parameter(f"input[{at}].{name}") for name in item if name not in known)
    prefix = _PREFIXES.get(kind, "")
    if item.get("id") and not str(item["id"]).startswith(prefix):
        yield refused(
            f"Invalid 'input[{at}].id': '{item['id']}'. Expected an ID that begins with '{prefix}'.",
            param=f"input[{at}].id",
            code="invalid_value",
        )
    yield from too_long(f"input[{at}].call_id", item.get("call_id"), MAX_CALL_ID)
    if kind == "function_call":
        yield from bad_name(f"input[{at}].name", item.get("name"))
    if kind == "message":
        yield from _parts(at, item)


def _parts(at: int, item: JsonObject) -> Iterator[Failure]:
    answered = item.get("role") == "assistant"
    for index, part in enumerate(objects_in(item.get("content"))):
        if (part.get("type") in _ASSISTANT_PARTS) is not answered:
            supported = "'output_text' and 'refusal'" if answered else "'input_text', 'input_image', and 'input_file'"
            yield refused(
                f"Invalid value: '{part.get('type')}'. Supported values are: {supported}.",
                param=f"input[{at}].content[{index}]",
                code="invalid_value",
            )


def _own(item: JsonObject, issued: Issued) -> Iterator[Failure]:
    """Ids of what the model has made are the API's own. A client may name its own items: Codex does."""
    item_id = item.get("id")
    if isinstance(content := item.get("encrypted_content"), str) and item.get("type") == "reasoning":
        yield from _encrypted(item_id, content)
    elif item_id is None or item.get("role") in _CLIENT_ROLES or item.get("type") in _CALLS.values():
        return
    elif not issued.made(str(item_id)):
        yield _not_found(item_id)
    elif item.get("type") in ("item_reference", "reasoning") and not issued.persisted(str(item_id)):
        yield _not_found(
            item_id,
            " Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove "
            "this item from your input.",
        )


def _not_found(item_id: Any, why: str = "") -> Failure:
    return refused(f"Item with id '{item_id}' not found.{why}", param="input", status=404)


def _encrypted(item_id: Any, content: str) -> Iterator[Failure]:
    bound_to = item_of_encrypted(content)
    why = "Encrypted content could not be decrypted or parsed."
    if bound_to is not None:
        why = "" if item_id in (None, bound_to) else "Encrypted content item_id did not match the target item id."
    if why:
        yield refused(
            f"The encrypted content for item {item_id} could not be verified. Reason: {why}",
            code="invalid_encrypted_content",
        )


def _neighbours(items: list[JsonObject], issued: Issued) -> Iterator[Failure]:
    """A thought stands before what was said after it, and what was said after a thought behind it."""
    listed = [str(item["id"]) for item in items if item.get("id")]
    ids = set(listed)
    for item_id in listed:
        if listed.count(item_id) > 1:
            yield refused(
                f"Duplicate item found with id {item_id}. Remove duplicate items from your input and try again.",
                param="input",
            )
    for at, item in enumerate(items):
        following = items[at + 1] if at + 1 < len(items) else {"role": "user"}
        spoken = following.get("type", "message") not in ("function_call_output", "custom_tool_call_output")
        if item.get("type") == "reasoning" and not (spoken and following.get("role", "assistant") == "assistant"):
            yield refused(
                f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item.",
                param="input",
            )
        before = issued.thought_before(str(item.get("id")))
        if before is not None and before not in ids and item.get("type") != "item_reference":
            yield refused(
                f"Item '{item['id']}' of type '{item.get('type')}' was provided without its required 'reasoning' "
                f"item: '{before}'.",
                param="input",
            )


def _calls_and_results(items: list[JsonObject]) -> Iterator[Failure]:
    asked: dict[str, str] = {}
    answered: set[str] = set()
    for item in items:
        kind, call_id = str(item.get("type")), str(item.get("call_id"))
        if kind in _CALLS:
            asked[call_id] = _CALLS[kind]
        elif kind in _CALLS.values():
            answered.add(call_id)
            if asked.get(call_id) != kind:
                named = "custom tool call" if kind.startswith("custom") else "function call"
                yield refused(f"No tool call found for {named} output with call_id {call_id}.", param="input")
    for call_id in asked:
        if call_id not in answered:
            yield refused(f"No tool output found for function call {call_id}.", param="input")
