"""What a run was asked, in one text: the user's message, a client's input, or the name of a sequence. The one place for
every surface."""

from __future__ import annotations

import re
from base64 import b64decode
from typing import Any, Final

import msgspec

from tailrace.events.speakers import named_text
from tailrace.journal.fold import SEQUENCE
from tailrace.messages import File, Image, JsonObject, Message
from tailrace.ports import Run

LLM_CALL: Final = "llm_call"  # the name of the sequence that a durable model call is
_NOTE: Final = re.compile(r"<(system-reminder|local-command-[a-z]+|command-name)>.*</[a-z-]+>", re.DOTALL)
SHOWN_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})
_URL_CHARS: Final = 200  # of an address
_MEDIA: Final = re.compile(r"image|audio|document|file")  # types of parts, in whichever dialect


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


def media_words(part: Image | File) -> str:
    """`image: image/png, 240 kB`, `file: bill.pdf`; never what is in it."""
    kind, name = ("file", part.name) if isinstance(part, File) else ("image", "")
    media_type, data = part.media_type, part.data
    if part.url.startswith("data:"):  # an address that holds the image itself, as the page and most clients send it
        head, _, data = part.url.removeprefix("data:").partition(",")
        media_type = media_type or head.partition(";")[0]
    size = len(data) * 3 // 4
    shown = f"{size} bytes" if size < 10_000 else f"{size // 1000} kB"
    described = ", ".join(filter(None, (media_type, shown if data else part.url[:_URL_CHARS])))
    return f"{kind}: {name or described}"


def attached_image(run: Run, number: int) -> tuple[str, bytes] | None:
    """The media type and the bytes of an image of the question; None where there is none, or an address only."""
    try:
        parts = msgspec.convert(run.new.input.get("message"), Message).parts
    except msgspec.ValidationError:
        return None
    images = [part for part in parts if isinstance(part, Image)]
    if number >= len(images):
        return None
    image = images[number]
    media_type, data = image.media_type, image.data
    if image.url.startswith("data:"):
        head, _, data = image.url.removeprefix("data:").partition(",")
        media_type = head.partition(";")[0]
    try:
        return (media_type, b64decode(data)) if data and media_type in SHOWN_IMAGES else None
    except ValueError:
        return None


def _asked_in_call(params: Any) -> str:
    """What a durable model call asks: such calls are many, and all of one name."""
    if not isinstance(params, dict):
        return ""
    prompt = params.get("prompt")
    return prompt if isinstance(prompt, str) else asked_of_model(params)


def speaker_of(run: Run) -> str:
    """Who asked, where several people share the conversation; empty where the model reads no name."""
    spoken_by = run.new.input.get("spoken_by")
    return str(spoken_by.get("name") or spoken_by.get("id") or "") if isinstance(spoken_by, dict) else ""


def asked_of_model(body: JsonObject) -> str:
    """The last thing that the user says in a client's request, in whichever dialect: results of tools and notes of the
    client's own are not what they say."""
    said = body.get("input", body.get("messages"))
    if isinstance(said, str):
        return said
    for message in reversed(said) if isinstance(said, list) else ():
        if isinstance(message, dict) and message.get("role") == "user":
            content = message.get("content")
            if (text := _text(content)) or _has_media(content):
                return text
    return ""


def _text(content: Any) -> str:
    if isinstance(content, str):
        return "" if "<" in content and _is_note(content) else content
    texts = [part.get("text") for part in content if isinstance(part, dict)] if isinstance(content, list) else ()
    return "".join(text for text in texts if isinstance(text, str) and not _is_note(text))


def _has_media(content: Any) -> bool:
    """An image or a file that comes without words is the user's all the same, and no earlier question is. Beside a
    tool's result it is what the tool gave."""
    parts = content if isinstance(content, list) else ()
    kinds = [str(part.get("type")) for part in parts if isinstance(part, dict)]
    return "tool_result" not in kinds and any(map(_MEDIA.search, kinds))


def _is_note(text: str) -> bool:
    """As Claude Code tells the model of the date, of files and of its own commands, beside what its user typed."""
    return _NOTE.fullmatch(text.strip()) is not None
