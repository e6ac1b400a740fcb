"""Keeps secrets out of messages that are shown or stored (J113, J114). Pure."""

from __future__ import annotations

from tailrace.messages import Message, Part, Text, ToolCall, ToolResult
from tailrace.redact import REDACTED, TextRedactor

__all__ = ["REDACTED", "Redactor"]


class Redactor(TextRedactor):
    """What is secret in texts and messages."""

    def redact_message(self, message: Message) -> Message:
        """The same message without secrets in its text and in the arguments of its calls: they are not sent, not run
        and not kept. A provider's own items stay as they are, since they may be signed."""
        if self.idle:
            return message
        return Message(message.role, tuple(map(self._redact_part, message.parts)))

    def _redact_part(self, part: Part) -> Part:
        match part:
            case Text(text):
                return Text(self.redact(text))
            case ToolCall(id=call_id, name=name, arguments=arguments):
                return ToolCall(call_id, name, self.redact(arguments))
            case ToolResult(call_id=call_id, content=str(content), ok=ok):
                return ToolResult(call_id, self.redact(content), ok)
            case _:
                return part
