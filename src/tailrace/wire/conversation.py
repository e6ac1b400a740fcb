"""The messages of a client's request in neutral form: what the dialects' parsers share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from tailrace.messages import Dialect, File, Image, JsonObject, Message, Native, Part, Text, ToolResult
from tailrace.wire.client_request import InvalidRequest


class Conversation(ABC):
    """Collects `messages`. `opaque_at` is the place of the first part that only this dialect can express."""

    def __init__(self, dialect: Dialect) -> None:
        self.messages: list[Message] = []
        self.opaque_at = ""
        self._dialect: Dialect = dialect

    @abstractmethod
    def neutral_part(self, part: JsonObject, where: str) -> Part | None:
        """The part in neutral form; None where only this dialect can express it."""

    def parts_of(self, content: object, where: str, noun: str = "parts") -> list[Part]:
        """The parts of a `content` that stands at `where`: a text or a list. Raises `InvalidRequest`."""
        if isinstance(content, str):
            return [Text(content)]
        if not isinstance(content, list):
            raise InvalidRequest(f"expected a text or a list of {noun}", where)
        return [self.part(part, f"{where}[{index}]") for index, part in enumerate(content)]

    def part(self, part: object, where: str) -> Part:
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            raise InvalidRequest("expected an object with a type", where)
        if (neutral := self.neutral_part(part, where)) is not None:
            return neutral
        self.opaque_at = self.opaque_at or where
        return Native(self._dialect, part)

    def add_result(self, result: ToolResult) -> None:
        """The results of one answer's calls are one message."""
        last = self.messages[-1] if self.messages else None
        if last is not None and last.role == "tool":
            self.messages[-1] = Message("tool", (*last.parts, result))
        else:
            self.messages.append(Message("tool", (result,)))


def result_content(parts: Iterable[Part]) -> str | tuple[Text | Image | File, ...]:
    """What a tool returned: plain text where there is nothing else in it."""
    content = tuple(part for part in parts if isinstance(part, Text | Image | File))
    return joined_text(content) if all(isinstance(part, Text) for part in content) else content


def joined_text(parts: Iterable[Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Text))


def unknown_role(role: object, where: str) -> InvalidRequest:
    return InvalidRequest(f"no such role: {str(role)[:40]!r}", f"{where}.role")
