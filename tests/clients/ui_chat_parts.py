"""What the tests of `/ui/chat` ask and how they read what a message shows."""

from __future__ import annotations

from typing import Any

from tailrace.testing.provider import Break, Offset, Scenario, reply

TEXT = "One two three four five six seven eight nine ten"
STALLED = Scenario(reply=reply(TEXT), broken=Break("stall", Offset(60, per_cent=True)))
RETURNED = (
    "return {messages: chat.messages, chunks: chat.chunks, errors: chat.errors, data: chat.data, status: chat.status};"
)
APPROVING = "sendAutomaticallyWhen: ai.lastAssistantMessageIsCompleteWithApprovalResponses"


def parts_of(message: dict[str, Any]) -> list[Any]:
    """What a message shows, in short."""
    shown: list[Any] = []
    for part in message["parts"]:
        match part["type"]:
            case "text" | "reasoning":
                assert part["state"] == "done"
                shown.append((part["type"], part["text"]))
            case "dynamic-tool":
                shown.append((part["toolName"], part["state"], part.get("output", part.get("errorText"))))
            case kind if kind.startswith("tool-"):
                shown.append((kind, part["state"], part.get("output")))
            case kind:
                shown.append(kind)
    return shown
