"""The kinds of text in a response: where a provider's event belongs, and the events in which ours are sent.

Owns the names of the dialect's growing fields. The stream's events come in families: `<name>.delta` has the next piece,
`<name>.done` the complete text. The texts of a family that is not listed are complete in `output_item.done`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tailrace.messages import AnyDelta, JsonObject, ReasoningDelta, RefusalDelta, TextDelta

TextKind = Literal["text", "reasoning", "refusal", "call", "nothing"]
CALL_FIELDS = {"function_call": "arguments", "custom_tool_call": "input"}  # item type → the field with its input


class Slot(msgspec.Struct, frozen=True):
    """One growing text: `item[path]`, or `item[path][index]` where it is one of several (`index` is set), or
    `item[path][index][field]` where those are objects (`part` is set)."""

    item: str  # the type of the text's item: created where `output_item.added` never came
    kind: TextKind  # what it means to a reader
    path: tuple[str, ...]
    index: str = ""  # the event's key for the place in the list
    part: str = ""  # the type of the list's objects
    field: str = ""  # their key for the text
    done_key: str = ""  # the key of the complete text in `<name>.done`


def _part(item: str, kind: TextKind, path: str, part: str, field: str) -> Slot:
    index = "summary_index" if path == "summary" else "content_index"
    return Slot(item, kind, (path,), index, part, field, done_key=field)


def _field(item: str, kind: TextKind, *path: str) -> Slot:
    return Slot(item, kind, path, done_key=path[-1])


_REASONING = _part("reasoning", "reasoning", "content", "reasoning_text", "text")
_SUMMARY = _part("reasoning", "reasoning", "summary", "summary_text", "text")

SLOTS: dict[str, Slot] = {
    "response.output_text": _part("message", "text", "content", "output_text", "text"),
    "response.refusal": _part("message", "refusal", "content", "refusal", "refusal"),
    "response.reasoning_text": _REASONING,
    "response.reasoning": _REASONING,  # what early and compatible servers call it
    "response.reasoning_summary_text": _SUMMARY,
    "response.reasoning_summary": _SUMMARY,
    "response.function_call_arguments": _field("function_call", "call", "arguments"),
    "response.custom_tool_call_input": _field("custom_tool_call", "call", "input"),
    "response.mcp_call_arguments": _field("mcp_call", "nothing", "arguments"),
    "response.code_interpreter_call_code": _field("code_interpreter_call", "nothing", "code"),
    "response.apply_patch_call_operation_diff": _field("apply_patch_call", "nothing", "operation", "diff"),
    "response.shell_call_command": Slot(
        "shell_call", "nothing", ("action", "commands"), "command_index", done_key="command"
    ),
}
DELTA_SLOTS: dict[str, Slot] = {f"{name}.delta": slot for name, slot in SLOTS.items()}
DONE_SLOTS: dict[str, Slot] = {f"{name}.done": slot for name, slot in SLOTS.items()}
PART_SLOTS: dict[str, Slot] = {slot.part: slot for slot in SLOTS.values() if slot.part}
CALL_SLOTS: dict[str, Slot] = {slot.item: slot for slot in SLOTS.values() if slot.kind == "call"}
# Events with one object of an item's list, empty at first and complete at the end.
PART_ADDED = {
    "response.content_part.added": "content",
    "response.reasoning_part.added": "content",
    "response.reasoning_summary_part.added": "summary",
}
PART_DONE = {name.replace(".added", ".done"): path for name, path in PART_ADDED.items()}
ANNOTATION_ADDED = frozenset({"response.output_text.annotation.added", "response.output_text_annotation.added"})


class TextForm(msgspec.Struct, frozen=True):
    """The item, part and events of one kind of text."""

    item: str
    prefix: str  # of the item's id
    parts: str  # the item's list
    part: JsonObject  # one of its objects, bare
    field: str
    part_event: str
    text_event: str
    index: str  # the events' key for the place in the list


_TEXT_PART = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
FORMS: dict[type[AnyDelta], TextForm] = {
    TextDelta: TextForm(
        *("message", "msg", "content", _TEXT_PART, "text"),
        *("response.content_part", "response.output_text", "content_index"),
    ),
    RefusalDelta: TextForm(
        *("message", "msg", "content", {"type": "refusal", "refusal": ""}, "refusal"),
        *("response.content_part", "response.refusal", "content_index"),
    ),
    # Readers of this API show summaries; few show raw reasoning text.
    ReasoningDelta: TextForm(
        *("reasoning", "rs", "summary", {"type": "summary_text", "text": ""}, "text"),
        *("response.reasoning_summary_part", "response.reasoning_summary_text", "summary_index"),
    ),
}


class OpenText:
    """An open text: the fields that its events repeat, and its pieces so far."""

    __slots__ = ("_counted", "_length", "annotations", "head", "item", "keys", "logprobs", "pieces")

    def __init__(self, event: str, item: JsonObject, keys: JsonObject) -> None:
        self.item = item
        self.keys = keys
        self.pieces: list[str] = []
        self._counted = self._length = 0  # the pieces whose characters are counted, and these
        self.annotations: list[JsonObject] = []
        self.logprobs: list[JsonObject] = []
        fields: JsonObject = {"type": f"{event}.delta", **keys}
        if event == "response.output_text":
            fields["logprobs"] = []
        body = msgspec.json.encode(fields)[:-1]
        self.head = b'event: %b.delta\ndata: %b,"sequence_number":' % (event.encode(), body)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def length(self) -> int:
        """The characters of the text. Counts what was added since it was last asked for."""
        self._length += sum(map(len, self.pieces[self._counted :]))
        self._counted = len(self.pieces)
        return self._length
