"""The AI SDK's UI message stream, which `useChat` reads."""

from __future__ import annotations

from tailrace.plugins import Integration

INTEGRATION = Integration(name="ai_sdk", title="the AI SDK", routes=".endpoint:routes")
