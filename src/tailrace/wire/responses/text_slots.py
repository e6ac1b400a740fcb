"""Where the text of a streamed event belongs in the finished response, one row per kind of text.

Owns the names of the dialect's growing fields. The stream's events come in families: `<name>.delta` has the next piece,
`<name>.done` the complete text. The texts of a family that is not listed are complete in `output_item.done`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

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
