"""The one parser of messages as Chat Completions writes them: for clients of our API, for runs and for steps."""

from __future__ import annotations

from tailrace.messages import Image, JsonObject, Message, Native, Part, Text, ToolResult
from tailrace.wire.chat.completion import completion_from_body
from tailrace.wire.client_request import InvalidRequest
from tailrace.wire.conversation import Conversation, joined_text, result_content, unknown_role
from tailrace.wire.openai_request import file_of, image_of


class ChatConversation(Conversation):
    """`system` has the texts of the system messages before the first other message."""

    def __init__(self) -> None:
        super().__init__("chat")
        self.system: list[str] = []

    def add(self, message: JsonObject, where: str) -> None:
        """Adds the message that stands at `where`. Raises `InvalidRequest`."""
        content = message.get("content")
        match message.get("role"):
            case "system" | "developer":
                text = joined_text(self.parts_of(content, f"{where}.content"))
                if self.messages:
                    self.messages.append(Message("system", (Text(text),)))
                else:
                    self.system.append(text)
            case "user":
                self.messages.append(Message("user", tuple(self.parts_of(content, f"{where}.content"))))
            case "assistant":
                self.messages.append(completion_from_body({"choices": [{"message": message}]}).message)
            case "tool":
                call_id = message.get("tool_call_id")
                if not isinstance(call_id, str):
                    raise InvalidRequest("names the call that this is the result of", f"{where}.tool_call_id")
                self.add_result(ToolResult(call_id, result_content(self.parts_of(content, f"{where}.content"))))
            case "function":
                self.opaque_at = self.opaque_at or where
                self.messages.append(Message("user", (Native("chat", message),)))
            case role:
                raise unknown_role(role, where)

    def part(self, part: object, where: str) -> Part:
        return part if isinstance(part, Image) else super().part(part, where)  # a step's images are read before

    def neutral_part(self, part: JsonObject, where: str) -> Part | None:
        match part:
            case {"type": "text", "text": str(text)}:
                return Text(text)
            case {"type": "image_url", "image_url": {"url": str(url), **more}}:
                return image_of(url, more.get("detail"), f"{where}.image_url")
            case {"type": "image_url", "image_url": str(url)}:
                return image_of(url, None, f"{where}.image_url")
            case {"type": "file", "file": dict(file)}:
                return file_of(file)
            case _:
                return None
