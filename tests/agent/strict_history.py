"""A strict reader of request bodies: what every provider of a dialect refuses, and some forgive.

For tests of whatever builds requests: a conversation that passes here can be sent anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tailrace.messages import Dialect, JsonObject

_ROLES = {"chat": {"system", "developer", "user", "assistant", "tool"}, "anthropic": {"user", "assistant"}}


def problems_in(dialect: Dialect, body: JsonObject) -> list[str]:
    """What is wrong with the conversation in this request; empty when nothing is."""
    problems = list(_READERS[dialect](body))
    try:
        msgspec.json.encode(body).decode("utf-8")
    except UnicodeError:
        problems.append("a lone surrogate")
    return problems


def _chat(body: JsonObject) -> Iterator[str]:
    open_calls: list[str] = []
    for at, message in enumerate(body.get("messages") or []):
        role = message.get("role")
        if role not in _ROLES["chat"]:
            yield f"message {at}: no such role: {role!r}"
        if role == "tool":
            if message.get("tool_call_id") not in open_calls:
                yield f"message {at}: a result that no call before it asked for"
            else:
                open_calls.remove(message["tool_call_id"])
            continue
        if open_calls:
            yield f"message {at}: calls without a result: {open_calls}"
            open_calls = []
        calls = message.get("tool_calls") or []
        if role == "assistant" and not calls and not message.get("content"):
            yield f"message {at}: an empty answer"
        if role == "user" and not message.get("content"):
            yield f"message {at}: an empty question"
        open_calls = [str(call.get("id")) for call in calls]
        if len(set(open_calls)) != len(open_calls):
            yield f"message {at}: two calls with one id"
        for call in calls:
            yield from _arguments(f"message {at}", call.get("function", {}).get("arguments"))
    if open_calls:
        yield f"at the end: calls without a result: {open_calls}"


def _responses(body: JsonObject) -> Iterator[str]:
    items = body.get("input")
    if isinstance(items, str):
        return
    asked: set[str] = set()
    answered: set[str] = set()
    for at, item in enumerate(items or []):
        match item.get("type", "message"):
            case "function_call":
                if item.get("call_id") in asked:
                    yield f"item {at}: two calls with one id"
                asked.add(str(item.get("call_id")))
                yield from _arguments(f"item {at}", item.get("arguments"))
            case "function_call_output":
                if item.get("call_id") not in asked:
                    yield f"item {at}: a result that no call before it asked for"
                if item.get("call_id") in answered:
                    yield f"item {at}: a second result for one call"
                answered.add(str(item.get("call_id")))
            case "message":
                if not item.get("content"):
                    yield f"item {at}: an empty message"
            case _:
                pass
    if missing := asked - answered:
        yield f"calls without a result: {sorted(missing)}"


def _anthropic(body: JsonObject) -> Iterator[str]:
    messages = body.get("messages") or []
    if not messages or messages[0].get("role") != "user":
        yield "the first message is not the user's"
    if not isinstance(body.get("max_tokens"), int):
        yield "max_tokens is missing"
    before: list[str] = []
    for at, message in enumerate(messages):
        role = message.get("role")
        if role not in _ROLES["anthropic"]:
            yield f"message {at}: no such role: {role!r}"
        if at and messages[at - 1].get("role") == role:
            yield f"message {at}: two messages of one role in a row"
        blocks = _blocks(message.get("content"))
        if not blocks:
            yield f"message {at}: empty"
        results = [str(b.get("tool_use_id")) for b in blocks if b.get("type") == "tool_result"]
        if sorted(results) != sorted(before):
            yield f"message {at}: results {results} for calls {before}"
        if results and [b.get("type") for b in blocks[: len(results)]] != ["tool_result"] * len(results):
            yield f"message {at}: something stands before the results"
        yield from _anthropic_texts(at, blocks, last=at == len(messages) - 1, role=str(role))
        before = [str(b.get("id")) for b in blocks if b.get("type") == "tool_use"]
    if before:
        yield f"at the end: calls without a result: {before}"


def _anthropic_texts(at: int, blocks: list[JsonObject], *, last: bool, role: str) -> Iterator[str]:
    for block in blocks:
        if block.get("type") == "text" and not str(block.get("text", "")).strip():
            yield f"message {at}: a blank text block"
        if block.get("type") == "tool_use" and not isinstance(block.get("input"), dict):
            yield f"message {at}: a call whose input is no object"
    if last and role == "assistant" and blocks and blocks[-1].get("type") == "text":
        text = str(blocks[-1].get("text", ""))
        if text != text.rstrip():
            yield f"message {at}: the text to go on from ends in blanks"


def _blocks(content: Any) -> list[JsonObject]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [block for block in content or [] if isinstance(block, dict)]


def _arguments(where: str, text: Any) -> Iterator[str]:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, TypeError):
        yield f"{where}: arguments that are not JSON"
        return
    if not isinstance(value, dict):
        yield f"{where}: arguments that are no object"


_READERS = {"chat": _chat, "responses": _responses, "anthropic": _anthropic}
