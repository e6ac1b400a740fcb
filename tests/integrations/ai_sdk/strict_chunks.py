"""The chunks of the UI message stream as the AI SDK 5 knows them, which refuses any field beyond these."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_TOOL = {"toolCallId", "toolName", "providerExecuted", "dynamic"}
_PART = {"id", "providerMetadata"}
FIELDS: dict[str, set[str]] = {
    "start": {"messageId", "messageMetadata"},
    "message-metadata": {"messageMetadata"},
    "start-step": set(),
    "finish-step": set(),
    "finish": {"messageMetadata"},
    "abort": set(),
    "error": {"errorText"},
    "text-start": _PART,
    "text-delta": _PART | {"delta"},
    "text-end": _PART,
    "reasoning-start": _PART,
    "reasoning-delta": _PART | {"delta"},
    "reasoning-end": _PART,
    "tool-input-start": _TOOL,
    "tool-input-delta": {"toolCallId", "inputTextDelta"},
    "tool-input-available": _TOOL | {"input"},
    "tool-input-error": _TOOL | {"input", "errorText"},
    "tool-output-available": {"toolCallId", "output", "providerExecuted", "dynamic"},
    "tool-output-error": {"toolCallId", "errorText", "providerExecuted", "dynamic"},
    "source-url": {"sourceId", "url", "title"},
    "source-document": {"sourceId", "mediaType", "title", "filename"},
    "file": {"url", "mediaType"},
    "data": {"id", "data", "transient"},
}
# Of the AI SDK 6 alone: a page that knows them asks for approvals by parts.
APPROVALS: dict[str, set[str]] = {
    "tool-approval-request": {"approvalId", "toolCallId"},
    "tool-output-denied": {"toolCallId"},
}


def check_chunks(chunks: Iterable[dict[str, Any]], *, approvals: bool = False) -> None:
    known = FIELDS | APPROVALS if approvals else FIELDS
    for chunk in chunks:
        kind = "data" if chunk["type"].startswith("data-") else chunk["type"]
        assert kind in known, chunk
        assert set(chunk) - {"type"} <= known[kind], chunk
