"""What a run was asked, in one text: the user's message, a client's input, or the name of a sequence. The one place for
every surface."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from tailrace.journal.fold import SEQUENCE
from tailrace.messages import JsonObject, Message
from tailrace.ports import Run
from tailrace.speaker_marks import named_text

LLM_CALL: Final = "llm_call"  # the name of the sequence that a durable model call is
_NOTE: Final = re.compile(r"<(system-reminder|local-command-[a-z]+|command-name)>.*</[a-z-]+>", re.DOTALL)


def question_of(run: Run) -> str:
    """As its user saw it, without the files that a terminal has put into the message: `Ben: for me too` where several
    people share the conversation. Empty where the run keeps no question, as a fork does that goes on with another
    run's."""
    given = run.new.input
    if run.new.kind == SEQUENCE:
        definition = given.get("definition")
        name = str(definition.get("name", "")) if isinstance(definition, dict) else ""
        asked = _asked_in_call(given.get("input")) if name == LLM_CALL else ""
        return f"{name}: {asked}" if asked else name
    if isinstance(shown := given.get("shown"), str) and shown:
        return named_text(speaker_of(run), shown)
    try:
        return named_text(speaker_of(run), msgspec.convert(given.get("message"), Message).text)
    except msgspec.ValidationError:
        body = given.get("body") or given.get("request")
        return asked_of_model(body) if isinstance(body, dict) else ""


def _asked_in_call(params: Any) -> str:
    """What a durable model call asks: such calls are many, and all of one name."""
    if not isinstance(params, dict):
        return ""
    prompt = params.get("prompt")
    return prompt if isinstance(prompt, str) else asked_of_model(params)


def speaker_of(run: Run) -> str:
    """Who asked, where several people share the conversation; empty where the model is told no name."""
    spoken_by = run.new.input.get("spoken_by")
    return str(spoken_by.get("name", "")) if isinstance(spoken_by, dict) else ""


def asked_of_model(body: JsonObject) -> str:
    """The last thing that the user says in a client's request, in whichever dialect: results of tools and notes of the
    client's own are not what they say."""
    said = body.get("input", body.get("messages"))
    if isinstance(said, str):
        return said
    for message in reversed(said) if isinstance(said, list) else ():
        if isinstance(message, dict) and message.get("role") == "user" and (text := _text(message.get("content"))):
            return text
    return ""


def _text(content: Any) -> str:
    parts = content if isinstance(content, list) else ({"text": content},)
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return "".join(text for text in texts if isinstance(text, str) and not _is_note(text))


def _is_note(text: str) -> bool:
    """As Claude Code tells the model of the date, of files and of its own commands, beside what its user typed."""
    return _NOTE.fullmatch(text.strip()) is not None
