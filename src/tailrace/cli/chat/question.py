"""A question as it is sent: what was typed, the files that it names with "@", and the output of commands run with "!".

The user sees what they typed and what came along; the model gets all of it. A word with "@" that names no file is text.
"""

from __future__ import annotations

import base64
import mimetypes
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tailrace.messages import READABLE_IMAGES, Image, Message, Text
from tailrace.tools.text import text_in

MAX_FILE_BYTES: Final = 256_000
MAX_IMAGE_BYTES: Final = 5_000_000
MAX_LISTED: Final = 200
MAX_UNREADABLE: Final = 0.1  # of a text's characters
_NAMED: Final = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')
_UNREADABLE: Final = re.compile("[\x01-\x07\x0e-\x1a\x1c-\x1f\x7f\ufffd]")  # but for white space and Escape
_TRAILING: Final = ".,;:!?)]}'\""


class CommandOutput(msgspec.Struct, frozen=True):
    """A command that the user ran in the conversation. `code` is None where it was stopped."""

    command: str
    output: str
    code: int | None = 0


class Question(msgspec.Struct, frozen=True):
    """`shown` is how the user sees it, where that is less than what is sent. `notes` are about files that do not come
    along."""

    message: Message
    shown: str = ""
    notes: tuple[str, ...] = ()

    @property
    def typed(self) -> str:
        """For the input line."""
        return self.shown or self.message.text


class _Attached(msgspec.Struct, frozen=True):
    label: str
    text: str = ""
    image: Image | None = None


def composed(typed: str, shown: str, directory: Path, outputs: Sequence[CommandOutput] = ()) -> Question:
    """Reads the files: call it in a thread."""
    attached: list[_Attached] = []
    notes: list[str] = []
    for name in _names_in(typed):
        found = _read(name, directory)
        if isinstance(found, str):
            notes.append(found)
        elif found is not None:
            attached.append(found)
    attached += [_of_command(output) for output in outputs]
    text = "\n\n".join([typed, *(one.text for one in attached if one.text)])
    images = tuple(one.image for one in attached if one.image is not None)
    labels = "".join(f"\n  + {one.label}" for one in attached)
    visible = shown + labels
    return Question(Message("user", (Text(text), *images)), visible if visible != text else "", tuple(notes))


def files_named(text: str, directory: Path) -> list[str]:
    """The words with "@" that name a file or a directory, as a conversation would take it along."""
    return [f"@{name.rstrip(_TRAILING)}" for name in _names_in(text) if _path(name, directory) is not None]


def _names_in(text: str) -> list[str]:
    return list(dict.fromkeys(found[1] or found[2] for found in _NAMED.finditer(text)))


def _path(name: str, directory: Path) -> Path | None:
    """The file or directory; without the punctuation after it where there is none with it."""
    for candidate in dict.fromkeys((name, name.rstrip(_TRAILING))):
        try:
            path = directory / Path(candidate).expanduser()
            if candidate and path.exists():
                return path
        except (OSError, RuntimeError, ValueError):  # too long, no such user, a NUL
            continue
    return None


def _read(name: str, directory: Path) -> _Attached | str | None:
    """What comes along; a note where it cannot; None where the word names nothing."""
    path = _path(name, directory)
    if path is None:
        word = name.rstrip(_TRAILING)
        return f"@{word} is no file here: sent as text" if "/" in word or "." in word else None
    shown = name.rstrip(_TRAILING) if not (directory / name).exists() else name
    try:
        if path.is_dir():
            return _directory(shown, path)
        if not path.is_file():
            return f"@{shown} is no plain file: it does not come along"
        kind = mimetypes.guess_type(path.name)[0] or ""
        limit = MAX_IMAGE_BYTES if kind in READABLE_IMAGES else MAX_FILE_BYTES
        if (size := path.stat().st_size) > limit:
            return f"@{shown} has {size:,} bytes, more than {limit:,}: it does not come along"
        data = path.read_bytes()
    except OSError as exc:
        return f"@{shown} cannot be read: {(exc.strerror or 'unknown').lower()}"
    if kind in READABLE_IMAGES:
        image = Image(data=base64.b64encode(data).decode(), media_type=kind)
        return _Attached(f"{shown}, image", image=image)
    text = text_in(data)
    if text is None or _is_garbled(text):
        return f"@{shown} is no text: it does not come along"
    return _Attached(f"{shown}, {_lines(text)}", f'<file path="{shown}">\n{text.rstrip()}\n</file>')


def _is_garbled(text: str) -> bool:
    """Whether too much of it is nothing that a person reads: bytes that are no UTF-8, and control characters. A few
    may be in any text, as in one that is in Latin-1."""
    return len(_UNREADABLE.findall(text)) > len(text) * MAX_UNREADABLE


def _directory(name: str, path: Path) -> _Attached:
    entries = sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in path.iterdir())
    more = [f"… {len(entries) - MAX_LISTED} more"] if len(entries) > MAX_LISTED else []
    listing = "\n".join([*entries[:MAX_LISTED], *more])
    count = f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'}"
    return _Attached(f"{name}, {count}", f'<directory path="{name}">\n{listing}\n</directory>')


def _of_command(ran: CommandOutput) -> _Attached:
    how = "stopped" if ran.code is None else f"exit code {ran.code}"
    label = f"!{ran.command}, {_lines(ran.output)}"
    return _Attached(label, f"<command_output command={ran.command!r} result={how!r}>\n{ran.output}\n</command_output>")


def _lines(text: str) -> str:
    count = len(text.splitlines())
    return f"{count} line" + ("s" if count != 1 else "")


def files_for(word: str, directory: Path) -> list[str]:
    """What `@wo` may become, in the same form. Hidden files for those who type the dot."""
    typed = word.removeprefix("@")
    folder, _, start = typed.rpartition("/")
    folder = f"{folder}/" if "/" in typed else ""
    try:
        place = directory / Path(folder or ".").expanduser()
        entries = sorted(place.iterdir())[: 20 * MAX_LISTED]
        return [
            f"@{folder}{entry.name}" + ("/" if entry.is_dir() else "")
            for entry in entries
            if entry.name.startswith(start)
            and (start.startswith(".") or not entry.name.startswith("."))
            and not set(entry.name) & {" ", "\n"}
        ][:MAX_LISTED]
    except (OSError, RuntimeError, ValueError):
        return []
