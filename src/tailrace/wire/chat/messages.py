"""The one parser of messages as Chat Completions writes them: for clients of our API, for runs and for steps."""

from __future__ import annotations

from tailrace.messages import Image, JsonObject, Message, Part, Text, ToolResult
from tailrace.wire.chat.completion import completion_from_body
from tailrace.wire.client_request import Conversation, InvalidRequest, joined_text, result_content, unknown_role
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
                # A legacy call has no id: the number of its message tells it from others.
                answer_id = f"m{len(self.messages)}" if message.get("function_call") else ""
                body = {"id": answer_id, "choices": [{"message": message}]}
                self.messages.append(completion_from_body(body).message)
            case "tool":
                call_id = message.get("tool_call_id")
                if not isinstance(call_id, str):
                    raise InvalidRequest("names the call that this is the result of", f"{where}.tool_call_id")
                self.add_result(ToolResult(call_id, result_content(self.parts_of(content, f"{where}.content"))))
            case "function":
                self._add_function_result(message, where)
            case role:
                raise unknown_role(role, where)

    def _add_function_result(self, message: JsonObject, where: str) -> None:
        """The result of the legacy call before it, which has a name and no id."""
        calls = self.messages[-1].tool_calls if self.messages else ()
        if not calls or calls[-1].name != message.get("name"):
            raise InvalidRequest("no message before it calls this function", f"{where}.name")
        parts = self.parts_of(message.get("content"), f"{where}.content")
        self.add_result(ToolResult(calls[-1].id, result_content(parts)))

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
