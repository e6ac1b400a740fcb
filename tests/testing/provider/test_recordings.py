"""The provider against recordings of the services it stands for: no event, field or order that they do not send."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from tailrace.messages import Dialect
from tailrace.testing.provider import REPLIES
from tailrace.testing.scripted.render import events_of
from tailrace.testing.scripted.request_reader import scripted_request
from wire.recordings import load, needs_recordings

SERVICES = {"chat": {"openai", "deepseek"}, "responses": {"openai", "azure"}, "anthropic": {"anthropic"}}
# What no recording shows: the field of the plain body that stands for citations, and what the SDK types for logprobs
UNRECORDED = {
    "chat": re.compile(r"annotations"),
    "responses": re.compile(r".*logprobs\[\]"),
    "anthropic": re.compile(r"(?!)"),
}
ODD_REPLIES = {"empty", "no-arguments", "reasoning-only", "blocks", "citations"}  # rare, or broken by design
BLANK_LINE = re.compile(r"\r?\n\r?\n")


def label(data: Any) -> str:
    """What an event does, as far as its place in the order goes."""
    if not isinstance(data, dict):
        return str(data)
    if "type" in data:
        kind = (data.get("delta") or {}).get("type") if data["type"] == "content_block_delta" else None
        return str(kind or data["type"])
    if not data.get("choices"):
        return "usage"
    choice = data["choices"][0]
    delta = choice.get("delta") or {}
    if choice.get("finish_reason"):
        return "finish"
    if "role" in delta:
        return "role"
    if delta.get("tool_calls"):
        return "call" if delta["tool_calls"][0].get("id") else "arguments"
    return next((key for key, value in delta.items() if value is not None), "nothing")


def paths(value: Any, path: str = "") -> Iterator[str]:
    """Where every field stands, list positions left out."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"{path}.{key}"
            yield from paths(item, f"{path}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from paths(item, path + "[]")


def recorded(dialect: str, services: set[str]) -> list[list[Any]]:
    """The events of each recording, of these services or of all."""
    streams = []
    for recording in load(dialect):
        if recording.meta["provider"] in (services or {recording.meta["provider"]}) and recording.meta["status"] == 200:
            blocks = BLANK_LINE.split(recording.raw.decode())
            datas = [line[5:].strip() for block in blocks for line in block.splitlines() if line.startswith("data:")]
            streams.append([json.loads(data) if data.startswith("{") else data for data in datas])
    return streams


def ours(dialect: Dialect) -> dict[str, list[Any]]:
    body = {"model": "m", "stream": True, "stream_options": {"include_usage": True}}
    return {
        name: [event.data for event in events_of(dialect, named.reply, scripted_request(dialect, body))]
        for name, named in REPLIES.items()
    }


@needs_recordings
@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
def test_every_field_is_one_that_the_service_sends(dialect: Dialect) -> None:
    theirs: dict[str, set[str]] = {}
    for stream in recorded(dialect, SERVICES[dialect]):
        for data in stream:
            theirs.setdefault(label(data), set()).update(paths(data))
    assert len(theirs) > 5
    if dialect == "chat":  # one service's field inside the other's chunks
        theirs["reasoning_content"] |= theirs["content"]
    if dialect == "responses":  # the same object, whichever way it ended
        theirs["response.incomplete"] |= theirs["response.completed"]
    invented = {
        (label(data), path)
        for stream in ours(dialect).values()
        for data in stream
        for path in paths(data)
        if path not in theirs.get(label(data), set()) and not UNRECORDED[dialect].match(f"{label(data)} {path}")
    }
    assert invented == set()


@needs_recordings
@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
def test_every_event_follows_one_that_it_follows_in_the_wild(dialect: Dialect) -> None:
    theirs = {pair for stream in recorded(dialect, set()) for pair in pairwise(map(label, stream))}
    new = {
        pair
        for name, stream in ours(dialect).items()
        for pair in pairwise(map(label, stream))
        if name not in ODD_REPLIES and pair not in theirs and "annotations" not in pair
    }
    assert new == set()
