"""Cuts a response at a stop string: the Responses API has no such parameter."""

from __future__ import annotations

from tailrace.messages import JsonObject
from tailrace.wire.peer_json import objects_of
from tailrace.wire.translation.stop_strings import StopMatcher, StopStrings


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
    """The part with this beginning of its text, without what is said of the rest."""
    kept = {**part, "text": text}
    if part.get("annotations"):
        ends = ((annotation, annotation.get("end_index")) for annotation in objects_of(part["annotations"]))
        kept["annotations"] = [each for each, end in ends if not isinstance(end, int) or end <= len(text)]
    kept.pop("logprobs", None)
    return kept
