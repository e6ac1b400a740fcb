"""A run's log as a voice assistant tells it: what to say next, what to ask, how it ended. Pure.

All texts of a run are one answer, with an empty line between the texts before and after a tool. A loudspeaker cannot
take back what it said, but a screen can: when the server withdraws an attempt, the answer starts over with the text
that stands. Knows neither Home Assistant nor HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

_TOO_LONG = re.compile(r"context.?(?:length|window|size)|(?:prompt|input) is too long", re.IGNORECASE)
# Room for the answer, which a new conversation does not change; unless what is read is named beside it.
_ANSWER_ROOM = re.compile(r"max_(?:completion_|output_|new_)?tokens", re.IGNORECASE)
_WHAT_IS_READ = re.compile(r"\b(?:inputs?|prompt|messages|conversation)\b", re.IGNORECASE)
_NO_CREDIT = re.compile(r"quota|billing|credit|insufficient", re.IGNORECASE)
GAP = "\n\n"  # between the texts before and after a tool

# Every event of a log is of one of these two kinds; a test holds them to the server's own list.
READ = frozenset(
    {
        "message_chunk",
        "message_stop",
        "commentary",
        "attempt_discarded",
        "approval_asked",
        "approval_answered",
        "snapshot",
        "run_finished",
    }
)
PASSED_OVER = frozenset(
    {
        "run_started",
        "run_forked",
        "attempt_started",
        "answer_kept",
        "usage_recorded",
        "provider_events",
        "provider_answer",
        "reasoning_chunk",
        "message_recorded",
        "tool_output_recorded",
        "history_compressed",
        "tool_arguments_chunk",
        "tool_call_chunk",
        "tool_call_finished",
        "long_tool_hint",
        "gateway_notice",
        "signal_received",
        "delivered",
        "state_changed",
        "step_started",
        "step_failed",
        "step_finished",
        "step_cancelled",
        "steer_accepted",
        "steer_committed",
        "steer_returned",
        "sub_run_started",
        "llm_delta",
    }
)


@dataclass(frozen=True)
class Say:
    """The next piece of the answer."""

    text: str


@dataclass(frozen=True)
class StartOver:
    """What was said so far no longer stands; `text` is what does, from the beginning."""

    text: str


@dataclass(frozen=True)
class Ask:
    """The run waits until a person allows or denies this. `seq`: where to read on afterwards."""

    approval_id: str
    tool_name: str
    command: str
    directory: str
    seq: int


@dataclass(frozen=True)
class Ended:
    """The last of all. `status`: `completed`, `incomplete`, `failed` or `stopped`; `error` in words, else empty;
    `advice` is the name of the sentence that says what to do about it, empty where nothing is known."""

    status: str
    error: str = ""
    advice: str = ""


Told: TypeAlias = Say | StartOver | Ask | Ended


class _Text:
    """A text written by several attempts, any of which may be withdrawn. Adding costs the same however long it is."""

    def __init__(self, text: str = "", lengths: Iterable[Iterable[int]] | None = None) -> None:
        self.runs: list[tuple[int, list[str]]] = []
        start = 0
        for attempt, length in lengths if lengths is not None else [(0, len(text))]:
            self.add(text[start : start + length], attempt)
            start += length

    def __str__(self) -> str:
        return "".join(piece for _, pieces in self.runs for piece in pieces)

    def __bool__(self) -> bool:
        return bool(self.runs)

    def add(self, text: str, attempt: int) -> None:
        if not text:
            return
        if self.runs and self.runs[-1][0] == attempt:
            self.runs[-1][1].append(text)
        else:
            self.runs.append((attempt, [text]))


class LogView:
    """Any cut of a log into batches tells the same. `after`: the entries up to here are known already."""

    def __init__(self, after: int = 0) -> None:
        self.seq = after
        self.ended = False
        self._texts: list[_Text] = []
        self._closed = True  # the next chunk begins a text of its own
        self._whole = not after  # nothing of the answer was told before
        self._asked: set[str] = set()

    def feed(self, entries: Iterable[dict[str, Any]]) -> list[Told]:
        """What these entries of the log, decoded, add. An entry that is known already adds nothing."""
        told: list[Told] = []
        for entry in entries:
            if entry["seq"] > self.seq or entry["type"] == "snapshot":
                self.seq = entry["seq"]
                told += self._read(entry)
        return told

    def _read(self, entry: dict[str, Any]) -> list[Told]:
        match entry["type"]:
            case "message_chunk":
                return self._say(entry["text"], entry["attempt"])
            case "commentary":
                self._closed = True
                told = self._say(entry["text"], entry["attempt"])
                self._closed = True
                return told
            case "message_stop":
                self._closed = self._closed or not entry.get("final", False)
                return []
            case "attempt_discarded":
                return self._withdraw(entry["attempt"])
            case "approval_asked":
                return self._ask(entry)
            case "approval_answered":
                self._asked.add(entry["approval_id"])
                return []
            case "snapshot":
                return self._restore(entry)
            case "run_finished":
                unsaid = entry.get("output", "") if self._whole and not any(self._texts) else ""
                return [*self._say(unsaid, 0), *self._end(entry)]
            case _:
                return []

    def text(self) -> str:
        """The whole answer so far, of the entries that were read."""
        return GAP.join(filter(None, map(str, self._texts)))

    def _say(self, text: str, attempt: int) -> list[Told]:
        if not text:
            return []
        if self._closed:
            self._texts.append(_Text())
            self._closed = False
        current = self._texts[-1]
        gap = GAP if not current and any(self._texts) else ""
        current.add(text, attempt)
        return [Say(gap + text)]

    def _withdraw(self, attempt: int) -> list[Told]:
        before = self.text()
        for text in self._texts:
            text.runs = [run for run in text.runs if run[0] != attempt]
        stands = self.text()
        return [StartOver(stands)] if stands != before else []

    def _ask(self, asked: dict[str, Any]) -> list[Told]:
        if asked["approval_id"] in self._asked:
            return []
        self._asked.add(asked["approval_id"])
        command, tool_name = asked.get("command", ""), asked.get("tool_name", "")
        # a tool of an MCP server (`server__tool`) stands there with its name and arguments, and works in no directory
        # of ours; of a command line that begins with the word "terminal" the directory is part of what is approved
        is_of_server = "__" in tool_name and command.startswith(f"{tool_name} ")
        directory = "" if is_of_server else asked.get("directory", "")
        return [Ask(asked["approval_id"], tool_name, command, directory, self.seq)]

    def _restore(self, state: dict[str, Any]) -> list[Told]:
        """A snapshot stands for every entry up to its own."""
        before = self.text()
        messages = state.get("messages", [])
        self._texts = [_Text(message.get("text", ""), message.get("pieces")) for message in messages]
        self._closed = not messages or (bool(messages[-1].get("stopped")) and not messages[-1].get("final"))
        stands, told = self.text(), list[Told]()
        if stands != before:
            told.append(Say(stands[len(before) :]) if stands.startswith(before) else StartOver(stands))
        for approval in state.get("approvals", []):
            if approval.get("decision") is None:
                told += self._ask(approval["asked"])
        return told if state.get("status", "running") == "running" else [*told, *self._end(state)]

    def _end(self, finished: dict[str, Any]) -> list[Told]:
        self.ended = True
        error = finished.get("error") or {}
        return [Ended(finished["status"], error.get("message", ""), advice_on(error))]


def advice_on(error: dict[str, Any]) -> str:
    """Which sentence says what to do about this error of a run."""
    status, kind = error.get("status", 0), error.get("kind", "")
    if status == 413 or (status in (400, 422) and _is_too_long(kind, error.get("message", ""))):
        return "advice_anew"
    if status in (401, 402, 403, 404) or (status == 429 and _NO_CREDIT.search(kind)):
        return "advice_owner"
    return "advice_later" if kind == "cannot_connect" or status in (408, 429) or status >= 500 else ""


def _is_too_long(kind: str, message: str) -> bool:
    if _TOO_LONG.search(kind):
        return True
    is_of_answer = _ANSWER_ROOM.search(message) and not _WHAT_IS_READ.search(message)
    return bool(_TOO_LONG.search(message)) and not is_of_answer
