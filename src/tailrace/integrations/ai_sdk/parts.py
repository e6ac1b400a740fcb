"""What the parts of a UI message say of tools, and of what an answer rests on: web pages and documents. Pure."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from tailrace.events import ToolOutputRecorded
from tailrace.messages import JsonObject, Message, Native, ToolCall, ToolResult
from tailrace.runs.view.changes import CallWritten, WrittenCall
from tailrace.server.frontends.shown_runs import ShownCalls
from tailrace.wire.peer_json import objects_of, text_of
from tailrace.wire.translation.citations import citations_in

# Our tools are dynamic: no page knows them beforehand. They are not for the page to run.
_OURS: Final[JsonObject] = {"providerExecuted": True, "dynamic": True}
BROKE_OFF: Final = "The model's answer broke off before this call was whole; it was not run."
NOT_RUN: Final = "The run ended before this call was made."
_FETCH: Final = "web_fetch"
_PAGES = frozenset({"page_location"})  # Anthropic's word for a place in a PDF file
_PLACES = frozenset({"char_location", "content_block_location"}) | _PAGES


class ToolPart(msgspec.Struct):
    """A tool call of the model. `part_id` is the `toolCallId` that the client knows it by: providers use ids again."""

    call: ToolCall
    part_id: str
    foreign: bool
    begun: bool = False  # the client knows that it is coming
    shown: bool = False
    asked: bool = False

    @property
    def arguments(self) -> object:
        parsed = self.call.parsed()
        return parsed if parsed is not None else self.call.arguments


class ToolParts:
    """The tool parts of one run. `foreign`: the names of the tools that the client runs. The methods give the chunks
    that are due."""

    def __init__(self, run_id: str = "", foreign: Collection[str] = ()) -> None:
        self._calls = ShownCalls(run_id, foreign)
        self._begun: set[int] = set()  # calls that the client knows to be coming
        self._broken: set[str] = set()  # calls that broke off and were not made anew
        self.made: dict[int, ToolPart] = {}  # of calls that are whole, by index

    def write(self, change: CallWritten) -> list[JsonObject]:
        """The next piece of a call's arguments."""
        if change.begins:
            self._calls.begin(change.index, change.tool_name)
            self._begun.add(change.index)
        part_id = self._calls.id_of(change.index) or ""
        foreign = self._calls.is_foreign(change.index)
        chunks = [self._start(part_id, change.tool_name, foreign=foreign)] if change.begins else []
        if change.text:
            chunks.append({"type": "tool-input-delta", "toolCallId": part_id, "inputTextDelta": change.text})
        return chunks

    def break_off(self, calls: Collection[WrittenCall]) -> list[JsonObject]:
        """These calls will not be made."""
        chunks = []
        for call in calls:
            if call.index in self._begun:
                self._begun.discard(call.index)
                foreign = self._calls.is_foreign(call.index)
                part_id = self._calls.drop(call.index)
                self._broken.add(part_id)
                chunks.append(_input_error(part_id, call.tool_name, call.text, BROKE_OFF, foreign))
        return chunks

    def record(self, index: int, call: ToolCall) -> ToolPart:
        """This call is whole."""
        begun = index in self._begun
        part_id = (self._calls.id_of(index) if begun else None) or self._calls.begin(index, call.name)
        part = self.made[index] = ToolPart(call, part_id, self._calls.is_foreign(index), begun=begun)
        return part

    def show(self, part: ToolPart, arguments: object) -> list[JsonObject]:
        """The call begins, or is the client's to make."""
        known = {"toolCallId": part.part_id, "toolName": part.call.name}
        begun, part.begun, part.shown = part.begun, True, True
        chunks = [] if begun else [self._start(part.part_id, part.call.name, foreign=part.foreign)]
        whose = {} if part.foreign else _OURS
        return [*chunks, {"type": "tool-input-available", **known, "input": arguments, **whose}]

    def finish(self, *, completed: bool) -> list[JsonObject]:
        """The run has ended: the client makes its calls, where the run is complete."""
        chunks: list[JsonObject] = []
        for part in self.made.values():
            if part.foreign and completed:
                chunks += self.show(part, part.arguments)
            elif part.begun and not part.shown:
                call = part.call
                chunks.append(_input_error(part.part_id, call.name, call.arguments, NOT_RUN, part.foreign))
        return chunks

    def _start(self, part_id: str, name: str, *, foreign: bool) -> JsonObject:
        """A call that is made anew takes the part of the one that broke off."""
        whose = _OURS if not foreign else {"providerExecuted": False} if part_id in self._broken else {}
        self._broken.discard(part_id)
        return {"type": "tool-input-start", "toolCallId": part_id, "toolName": name, **whose}


def _input_error(part_id: str, name: str, arguments: str, error: str, foreign: bool) -> JsonObject:
    """One of the page's own counts as executed elsewhere: the page has no result to send."""
    whose = {"providerExecuted": True} if foreign else _OURS
    known = {"toolCallId": part_id, "toolName": name}
    return {"type": "tool-input-error", **known, "input": arguments, "errorText": error, **whose}


def output_of(part_id: str, recorded: ToolOutputRecorded) -> JsonObject:
    if recorded.ok:
        return {"type": "tool-output-available", "toolCallId": part_id, "output": recorded.output, **_OURS}
    return {"type": "tool-output-error", "toolCallId": part_id, "errorText": recorded.output, **_OURS}


def files_of(recorded: ToolOutputRecorded) -> Iterator[JsonObject]:
    for file in recorded.files:
        data = base64.b64encode(file.data).decode()
        yield {"type": "file", "url": f"data:{file.media_type};base64,{data}", "mediaType": file.media_type}


def client_result(part_id: str, result: ToolResult) -> JsonObject:
    """What one of the client's own tools gave."""
    if not result.ok:
        return {"type": "tool-output-error", "toolCallId": part_id, "errorText": result.text}
    try:
        value = msgspec.json.decode(result.text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        value = result.text
    return {"type": "tool-output-available", "toolCallId": part_id, "output": value}


def web_sources(message: Message) -> Iterator[tuple[str, str]]:
    """The address and the title of each page that the text cites."""
    for citation in citations_in(message):
        yield citation.url, citation.title


def document_sources(message: Message) -> list[tuple[str, str]]:
    """The name and the media type of each document that the text cites, once each."""
    found: dict[tuple[str, str], None] = {}
    for part in message.parts:
        match part:
            case Native(item={"type": "text"} as item):
                found |= dict.fromkeys(map(_cited_document, _citations(item)))
            case Native(item={"type": "output_text"} as item):
                files = (text_of(note.get("filename")) for note in objects_of(item.get("annotations")))
                found |= dict.fromkeys((name, _media_type(name)) for name in files if name)
            case _:
                pass
    return [*found]


def _citations(item: JsonObject) -> list[JsonObject]:
    return [cited for cited in objects_of(item.get("citations")) if cited.get("type") in _PLACES]


def _cited_document(cited: JsonObject) -> tuple[str, str]:
    name = text_of(cited.get("document_title")) or "document"
    return name, "application/pdf" if cited.get("type") in _PAGES else "text/plain"


def _media_type(name: str) -> str:
    return "application/pdf" if name.lower().endswith(".pdf") else "text/plain"


def fetched_page(call: ToolCall) -> str:
    """The address of the page that this call fetches; empty where it is another tool's."""
    arguments = call.parsed() if call.name == _FETCH else None
    return text_of((arguments or {}).get("url"))
