"""Keeps secrets out of messages that are shown or stored (J113, J114). Pure."""

from __future__ import annotations

import re

from tailrace.messages import Message, Part, Text, ToolCall, ToolResult
from tailrace.values.redact import REDACTED, TextRedactor

__all__ = ["REDACTED", "ArgumentsStream", "Redactor"]

# Of a JSON text: characters as they are, an escape, or an escape whose end has not arrived.
_UNIT = re.compile(r'[^\\]+|\\u[0-9a-fA-F]{4}|\\["\\/bfnrt]|\\(?:u[0-9a-fA-F]{0,3})?\Z|.', re.DOTALL)
_ESCAPES = {r"\b": "\b", r"\f": "\f", r"\n": "\n", r"\r": "\r", r"\t": "\t"}
LONG_CHARS = 4096  # so much at once is searched whole, in C, before it is looked at character by character (O177)
STEP_CHARS = 1 << 18  # of a whole text at once: in a thread it never holds the interpreter for long
_UNICODE_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")


class Redactor(TextRedactor):
    """Replaces the secrets in texts, messages and the arguments of calls."""

    def redact_arguments(self, arguments: str) -> str:
        """The arguments of a call, which are JSON text: a secret in it may be written with escapes."""
        if self.idle:
            return arguments
        stream = ArgumentsStream(self)
        pieces = [stream.feed(arguments[at : at + STEP_CHARS]) for at in range(0, len(arguments), STEP_CHARS)]
        return "".join(pieces) + stream.close()

    def redact_message(self, message: Message) -> Message:
        """The same message without secrets in its text and in the arguments of its calls: they are not sent, not run
        and not kept. A provider's own items stay as they are, since they may be signed."""
        return message if self.idle else Message(message.role, tuple(map(self._redact_part, message.parts)))

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
        self._units: list[str] = []  # the same text as it was written

    def feed(self, text: str) -> str:
        if self._redactor.idle:
            return text
        if len(text) > LONG_CHARS:
            text = "".join(self._units) + self._unfinished + text
            end = _harmless_chars(self._redactor, text)
            self._units, self._held, self._unfinished = [], "", ""
            return self._as_written.feed(text[:end]) + self._feed_units(text[end:])
        return self._feed_units(text)

    def _feed_units(self, text: str) -> str:
        units: list[str] = _UNIT.findall(self._unfinished + text)
        last = units[-1] if units else ""
        ends_open = last == "\\" or (last[:2] == "\\u" and len(last) < len(r"\u0000"))
        self._unfinished = units.pop() if ends_open else ""
        self._units += units
        self._held += "".join(map(_unescaped, units))
        return self._as_written.feed(self._released(self._redactor.held_from(self._held)))

    def close(self) -> str:
        unfinished, self._unfinished = self._unfinished, ""
        return self._as_written.feed(self._released(len(self._held)) + unfinished) + self._as_written.close()

    def _released(self, end: int) -> str:
        units, self._units = self._units, _cut_off(self._units, len(self._held) - end)
        out: list[str] = []  # from the end to the beginning
        at = end
        for found in reversed(self._redactor.matches(self._held[:end])):
            out += ["".join(_cut_off(units, at - found.end())), REDACTED]
            _cut_off(units, found.end() - found.start())
            at = found.start()
        self._held = self._held[end:]
        return "".join(units) + "".join(reversed(out))


def _harmless_chars(redactor: TextRedactor, text: str) -> int:
    """How many characters at the beginning are no part of a secret; whole units. 0 where the text has a secret."""
    plain = _all_unescaped(text)
    if plain is None or redactor.matches(plain):
        return 0
    held = len(plain) - redactor.held_from(plain)
    end = max(0, len(text) - len(r"\u0000") * (held + 1))
    last = text.rfind("\\", max(0, end - len(r"\u000")), end)
    if last < 0:
        return end  # no escape goes on behind it
    return last - (last - len(text[:last].rstrip("\\"))) % 2  # the first of a pair of backslashes is a unit's


def _all_unescaped(text: str) -> str | None:
    """As `_unescaped` of every unit, in a few steps. None where no character is free to stand for a backslash."""
    backslash = next((each for each in "\0\1\2" if each not in text), None)
    if backslash is None:
        return None
    text = text.replace(r"\\", backslash).replace(r"\"", '"').replace(r"\/", "/")
    for escape, character in _ESCAPES.items():
        text = text.replace(escape, character)
    return _UNICODE_ESCAPE.sub(lambda found: chr(int(found[1], 16)), text).replace(backslash, "\\")


def _cut_off(units: list[str], count: int) -> list[str]:
    """Removes as many units from the end as have so many characters."""
    tail: list[str] = []
    while count > 0:
        unit = units.pop()
        size = 1 if unit[0] == "\\" else len(unit)
        if size > count:
            units.append(unit[:-count])
            unit, size = unit[-count:], count
        tail.append(unit)
        count -= size
    return tail[::-1]


def _unescaped(unit: str) -> str:
    """The characters that the unit stands for."""
    if unit[0] != "\\" or len(unit) == 1:
        return unit
    kind, digits = unit[1], unit[2:]
    return chr(int(digits, 16)) if kind == "u" else _ESCAPES.get(unit, kind)
