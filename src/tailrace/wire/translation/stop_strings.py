"""Finds the first of several stop strings in a text that arrives in pieces, wherever it is split, and cuts a response
there: the Responses API has no such parameter.

An Aho-Corasick automaton: a character costs the same however many stop strings there are and however long they are. Of
stop strings that end at the same character the longest counts, as it began first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tailrace.messages import JsonObject
from tailrace.wire.peer_json import objects_of


class StopStrings:
    """The automaton of one request's stop strings; any number of texts may be matched against it. Empty strings stop
    nothing."""

    def __init__(self, strings: Iterable[str]) -> None:
        self.next: list[dict[str, int]] = [{}]
        self.depth = [0]
        self.found = [""]  # by state: the stop string that ends there
        self.fallback = [0]  # by state: that of the longest proper suffix
        for string in filter(None, strings):
            self._add(string)
        self._link()

    def _add(self, string: str) -> None:
        state = 0
        for character in string:
            if character not in self.next[state]:
                self.next[state][character] = len(self.next)
                self.depth.append(self.depth[state] + 1)
                self.next.append({})
                self.found.append("")
                self.fallback.append(0)
            state = self.next[state][character]
        self.found[state] = string

    def _link(self) -> None:
        states = deque(self.next[0].values())
        while states:
            state = states.popleft()
            for character, following in self.next[state].items():
                self.fallback[following] = self.step(self.fallback[state], character)
                self.found[following] = self.found[following] or self.found[self.fallback[following]]
                states.append(following)

    def step(self, state: int, character: str) -> int:
        while state and character not in self.next[state]:
            state = self.fallback[state]
        return self.next[state].get(character, 0)


class StopMatcher:
    """One text. What may be the beginning of a stop string is held back."""

    def __init__(self, strings: StopStrings) -> None:
        self._strings = strings
        self._state = 0
        self.held = ""

    def feed(self, text: str) -> tuple[str, str]:
        """The text that is certain, and the stop string that ends it; empty where none does yet."""
        strings, state = self._strings, self._state
        data, start = self.held + text, len(self.held)
        for end, character in enumerate(text, start + 1):
            state = strings.step(state, character)
            if stop := strings.found[state]:
                self._state, self.held = 0, ""
                return data[: end - len(stop)], stop
        self._state = state
        certain = len(data) - strings.depth[state]
        self.held = data[certain:]
        return data[:certain], ""

    def release(self) -> str:
        """What was held back, once nothing can follow it any more."""
        held, self.held, self._state = self.held, "", 0
        return held


def cut_at_stop(body: JsonObject, strings: StopStrings) -> tuple[JsonObject, str]:
    """The body up to the first stop string in one of its texts, and that string; the same body and nothing where there
    is none."""
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
