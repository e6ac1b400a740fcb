"""Keeps secrets out of messages that are shown or stored (J113, J114). Pure."""

from __future__ import annotations

import re

from tailrace.messages import Message, Part, Text, ToolCall, ToolResult
from tailrace.values.redact import REDACTED, TextRedactor

__all__ = ["REDACTED", "ArgumentsStream", "Redactor"]

# One character of a JSON text: an escape, an escape whose end has not arrived, or the character itself.
_UNIT = re.compile(r'\\u[0-9a-fA-F]{4}|\\["\\/bfnrt]|\\(?:u[0-9a-fA-F]{0,3})?\Z|.', re.DOTALL)
_ESCAPES = {r"\b": "\b", r"\f": "\f", r"\n": "\n", r"\r": "\r", r"\t": "\t"}


class Redactor(TextRedactor):
    """Replaces the secrets in texts, messages and the arguments of calls."""

    def redact_arguments(self, arguments: str) -> str:
        """The arguments of a call, which are JSON text: a secret in it may be written with escapes."""
        if self.idle:
            return arguments
        stream = ArgumentsStream(self)
        return stream.feed(arguments) + stream.close()

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
                return ToolCall(call_id, name, self.redact_arguments(arguments))
            case ToolResult(call_id=call_id, content=str(content), ok=ok):
                return ToolResult(call_id, self.redact(content), ok)
            case _:
                return part


class ArgumentsStream:
    """The arguments of one call in pieces. The joined output equals `redact_arguments` of the joined input."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._as_written = redactor.stream()  # searches the output once more as plain text: it may be no JSON
        self._unfinished = ""  # an escape whose end has not arrived
        self._held = ""  # the text that is held back, unescaped
        self._units: list[str] = []  # the same text as it was written, one unit per character

    def feed(self, text: str) -> str:
        if self._redactor.idle:
            return text
        units: list[str] = _UNIT.findall(self._unfinished + text)
        ends_open = bool(units) and units[-1][0] == "\\" and _is_unfinished(units[-1])
        self._unfinished = units.pop() if ends_open else ""
        self._units += units
        self._held += "".join(map(_character, units))
        return self._as_written.feed(self._released(self._redactor.held_from(self._held)))

    def close(self) -> str:
        unfinished, self._unfinished = self._unfinished, ""
        return self._as_written.feed(self._released(len(self._held)) + unfinished) + self._as_written.close()

    def _released(self, end: int) -> str:
        out: list[str] = []
        done = 0
        for found in self._redactor.pattern.finditer(self._held[:end]) if self._redactor.pattern else ():
            out += [*self._units[done : found.start()], REDACTED]
            done = found.end()
        out += self._units[done:end]
        self._held = self._held[end:]
        del self._units[:end]
        return "".join(out)


def _is_unfinished(unit: str) -> bool:
    return len(unit) == 1 or (unit[1] == "u" and len(unit) < len(r"\u0000"))


def _character(unit: str) -> str:
    """The character that the unit stands for."""
    if len(unit) == 1:
        return unit
    kind, digits = unit[1], unit[2:]
    return chr(int(digits, 16)) if kind == "u" else _ESCAPES.get(unit, kind)
