"""The kinds of text in a response: where a provider's event belongs, and the events in which ours are sent.

Owns the names of the dialect's growing fields. The stream's events come in families: `<name>.delta` has the next piece,
`<name>.done` the complete text. A family that is not listed, as of a tool that the provider runs, is complete in
`output_item.done`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tailrace.messages import AnyDelta, JsonObject, ReasoningDelta, RefusalDelta, TextDelta

TextKind = Literal["text", "reasoning", "refusal", "call"]
CALL_FIELDS = {"function_call": "arguments", "custom_tool_call": "input"}  # item type → the field with its input


class Slot(msgspec.Struct, frozen=True):
    """One growing text: `item[field]`, or `item[parts][index][field]` where it is one of several parts."""

    item: str  # the type of the text's item: created where `output_item.added` never came
    kind: TextKind  # what it means to a reader
    field: str  # the key of the text, also of the complete one in `<name>.done`
    parts: str = ""  # the item's list
    part: str = ""  # the type of its objects

    @property
    def index(self) -> str:
        """The events' key for the place in the list."""
        return f"{self.parts}_index"


_REASONING = Slot("reasoning", "reasoning", "text", "content", "reasoning_text")
_SUMMARY = Slot("reasoning", "reasoning", "text", "summary", "summary_text")

SLOTS: dict[str, Slot] = {
    "response.output_text": Slot("message", "text", "text", "content", "output_text"),
    "response.refusal": Slot("message", "refusal", "refusal", "content", "refusal"),
    "response.reasoning_text": _REASONING,
    "response.reasoning": _REASONING,  # what early and compatible servers call it
    "response.reasoning_summary_text": _SUMMARY,
    "response.reasoning_summary": _SUMMARY,
    "response.function_call_arguments": Slot("function_call", "call", "arguments"),
    "response.custom_tool_call_input": Slot("custom_tool_call", "call", "input"),
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
    """How texts of one kind are sent."""

    text_event: str
    part_event: str
    prefix: str  # of the item's id
    part: JsonObject  # bare

    @property
    def slot(self) -> Slot:
        return SLOTS[self.text_event]


_TEXT_PART = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
_SUMMARY_PART = {"type": "summary_text", "text": ""}
FORMS: dict[type[AnyDelta], TextForm] = {
    TextDelta: TextForm("response.output_text", "response.content_part", "msg", _TEXT_PART),
    RefusalDelta: TextForm("response.refusal", "response.content_part", "msg", {"type": "refusal", "refusal": ""}),
    # Readers of this API show summaries; few show raw reasoning text.
    ReasoningDelta: TextForm("response.reasoning_summary_text", "response.reasoning_summary_part", "rs", _SUMMARY_PART),
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
