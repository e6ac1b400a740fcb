"""Finds the first of several stop strings in a text that arrives in pieces, wherever it is split, and cuts a response
there: the Responses API has no such parameter. Of stop strings that end at the same character the longest counts."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.messages import JsonObject
from tailrace.wire.peer_json import objects_of

MAX_STOP_CHARS = 4096  # of all stop strings of one request: each piece of the text costs a step for each of them


class StopMatcher:
    """One text. What may be the beginning of a stop string is held back. Empty strings stop nothing."""

    def __init__(self, strings: Iterable[str]) -> None:
        self._strings = [*filter(None, strings)]
        self.held = ""

    def feed(self, text: str) -> tuple[str, str]:
        """The text that is certain, and the stop string that ends it; empty where none does yet."""
        data = self.held + text
        found = [(at + len(stop), at, stop) for stop in self._strings if (at := data.find(stop)) >= 0]
        if found:
            _, at, stop = min(found)
            self.held = ""
            return data[:at], stop
        begun = max((_length_begun(stop, data) for stop in self._strings), default=0)
        certain = len(data) - begun
        self.held = data[certain:]
        return data[:certain], ""

    def release(self) -> str:
        """What was held back, once nothing can follow it any more."""
        held, self.held = self.held, ""
        return held


def _length_begun(stop: str, data: str) -> int:
    """How many characters of the stop string the text ends with."""
    longest = min(len(stop) - 1, len(data))
    return next((length for length in range(longest, 0, -1) if data.endswith(stop[:length])), 0)


def cut_at_stop(body: JsonObject, strings: Iterable[str]) -> tuple[JsonObject, str]:
    """The body up to the first stop string in one of its texts, and that string; the same body where there is none."""
    output: list[JsonObject] = []
    for item in objects_of(body.get("output")):
        content: list[JsonObject] = []
        for part in objects_of(item.get("content")) if item.get("type") == "message" else ():
            text, stop = StopMatcher(strings).feed(part["text"]) if _is_text(part) else ("", "")
            if stop:
                content += [_shortened(part, text)] if text else []
                output += [{**item, "status": "completed", "content": content}] if content else []
                return {**body, "status": "completed", "incomplete_details": None, "output": output}, stop
            content.append(part)
        output.append(item)
    return body, ""


def without_last(body: JsonObject, characters: int) -> JsonObject:
    """The body without so many characters at the end of its last text."""
    output = objects_of(body.get("output"))
    for at in reversed(range(len(output))):
        content = objects_of(output[at].get("content"))
        for place in reversed(range(len(content)) if output[at].get("type") == "message" else ()):
            if _is_text(content[place]):
                content[place] = _shortened(content[place], content[place]["text"][:-characters])
                output[at] = {**output[at], "content": content}
                return {**body, "output": output}
    return body


def _is_text(part: JsonObject) -> bool:
    return part.get("type") in ("output_text", "text") and isinstance(part.get("text"), str)


def _shortened(part: JsonObject, text: str) -> JsonObject:
    """The part with this beginning of its text, without log probabilities and the annotations of the rest."""
    kept = {**part, "text": text}
    if part.get("annotations"):
        ends = ((annotation, annotation.get("end_index")) for annotation in objects_of(part["annotations"]))
        kept["annotations"] = [each for each, end in ends if not isinstance(end, int) or end <= len(text)]
    kept.pop("logprobs", None)
    return kept
