"""The fast path for the bulk of a stream: events that differ from the one before in a single string.

A server writes hundreds of events around one growing text, equal but for the text. From an event that was parsed in
full the template learns the bytes before and after the text. A block with the same bytes around one JSON string is the
same event with another text, and only that string is decoded. This is exact: the string goes through the same JSON
decoder, and a place is accepted only if a probe put there parses into the same event with the probe as its text.

Servers pad their events against traffic analysis, so the bytes after the text have a form of their own: nothing that
varies, a random string in a field, or blanks before the last brace. Each form reads many events at once in a few
operations over all of them, because a read brings one token when they are paced and hundreds when they are not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

import msgspec

from tailrace.messages import AnyDelta, EventForm, JsonObject
from tailrace.wire.sse import BLANK_LINE

_string_decoder = msgspec.json.Decoder(str)
_decode_string, _decode_strings = _string_decoder.decode, _string_decoder.decode_lines
_decode_any = msgspec.json.Decoder().decode
_NO_STRING = (msgspec.DecodeError, UnicodeDecodeError)
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ODD_ESCAPE = re.compile(rb"(?<!\\)(?:\\\\)*\\[/u]")  # that our own JSON does not have
_PADDING = re.compile(rb'"(?:obfuscation|p)"\s*:\s*"')
_PROBE = "tailrace-probe"
_RAW_PROBE = b'"tailrace-probe"'
_RAW_PADDING = b"abc123"
Path: TypeAlias = tuple[str | int, ...]
PADDING_FIELDS = ("obfuscation", "p")  # random text against traffic analysis: OpenAI's and Mistral's name for it


class Template:
    """Bytes around the text, and where the text goes. In this form nothing but the text varies."""

    __slots__ = ("_line_start", "_lines", "delta", "emits_empty", "form", "pieces", "start", "stop", "used_from")

    def __init__(self, prefix: bytes, suffix: bytes, pieces: list[str], delta: Callable[[str], AnyDelta]) -> None:
        """`prefix` ends with the quote that opens the text, `suffix` begins with the one that closes what varies."""
        suffix += BLANK_LINE
        self.form = EventForm(prefix, suffix, suffix + prefix)
        self.start, self.stop = len(prefix), -len(suffix)  # of what varies in an event of this form
        self._lines = prefix.count(b"\n")  # before the line with the text
        self._line_start = self.start - prefix.rfind(b"\n") - 1
        self.pieces = pieces  # takes the decoded text
        self.delta = delta
        self.used_from = len(pieces)
        self.emits_empty = False  # an empty text has a delta too

    @property
    def was_used(self) -> bool:
        return len(self.pieces) > self.used_from

    def text_in(self, event: bytes) -> str | None:
        """The text, or None where this is anything but the template around one JSON string. The event has its blank
        line."""
        form = self.form
        if not event.startswith(form.prefix) or not event.endswith(form.suffix):
            return None
        try:
            return _decode_string(event[self.start - 1 : self.stop + 1])
        except _NO_STRING:
            return None

    def bodies_in(self, whole: bytes, at: int, *, at_once: bool) -> tuple[list[bytes], list[str], int]:
        """Of the events of this form that begin `at` this offset, up to the first of another form: what varies, their
        texts, and where that other event begins. `at_once`: first tries to read all that remain together, which costs
        a look at all of them."""
        if at_once and (last := whole.rfind(self.form.prefix, at)) > at:
            stop = whole.find(BLANK_LINE, last) + 2
            if (found := self._together(whole[at:stop])) is not None:
                return *found, stop
        bodies: list[bytes] = []
        texts: list[str] = []
        while (end := whole.find(BLANK_LINE, at) + 2) > 1 and (
            text := self.text_in(event := whole[at:end])
        ) is not None:
            bodies.append(event[self.start : self.stop])
            texts.append(text)
            at = end
        return bodies, texts, at

    def _together(self, run: bytes) -> tuple[list[bytes], list[str]] | None:
        """Lines are split, and cut by their lengths alone; that they are events of this form is seen by putting them
        together again."""
        form, start, stop = self.form, self._line_start, self.stop + len(BLANK_LINE)
        bodies = [line[start:stop] for line in run[:-2].split(b"\n")[self._lines :: self._lines + 2]]
        if b"%b%b%b" % (form.prefix, form.turn.join(bodies), form.suffix) != run:
            return None
        try:
            texts = self._texts(bodies)
        except (*_NO_STRING, ValueError):
            return None
        return (bodies, texts) if len(texts) == len(bodies) else None

    def _texts(self, bodies: list[bytes]) -> list[str]:
        """As many texts as bodies, or the bodies are not of this form; so too where this raises `ValueError`,
        `msgspec.DecodeError` or `UnicodeDecodeError`."""
        return _decode_lines(bodies)


def _decode_lines(strings: Sequence[bytes]) -> list[str]:
    """The JSON strings with these bytes between their quotes. A JSON string has no bare line end and no bare quote: if
    there are as many texts as lines, each line is one text."""
    return _decode_strings(b'"%b"' % b'"\n"'.join(strings))


class PaddedTemplate(Template):
    """A random string stands in a field behind the text."""

    __slots__ = ("_marker",)

    def __init__(
        self, prefix: bytes, marker: bytes, suffix: bytes, pieces: list[str], delta: Callable[[str], AnyDelta]
    ) -> None:
        super().__init__(prefix, suffix, pieces, delta)
        self._marker = marker  # from the quote that closes the text to the one that opens the padding

    def text_in(self, event: bytes) -> str | None:
        form = self.form
        if not event.startswith(form.prefix) or not event.endswith(form.suffix):
            return None
        told, marker, padding = event[self.start - 1 : self.stop].partition(self._marker)
        if not marker or (padding and not padding.isalnum()):
            return None
        try:
            return _decode_string(told + b'"')
        except _NO_STRING:
            return None

    def _texts(self, bodies: list[bytes]) -> list[str]:
        told, paddings = zip(*[body.split(self._marker) for body in bodies], strict=True)
        if (padding := b"".join(paddings)) and not padding.isalnum():
            raise ValueError("a padding is more than a word")
        return _decode_lines(told)


class SpacedTemplate(Template):
    """Any number of blanks stands before the last brace. `inner` is what stands between the text and the blanks, the
    text's last quote included."""

    __slots__ = ("_inner",)

    def __init__(self, prefix: bytes, inner: bytes, pieces: list[str], delta: Callable[[str], AnyDelta]) -> None:
        super().__init__(prefix, b"}", pieces, delta)
        self._inner = inner

    def text_in(self, event: bytes) -> str | None:
        form = self.form
        if not event.startswith(form.prefix) or not event.endswith(form.suffix):
            return None
        told = event[self.start - 1 : self.stop].rstrip(b" ")
        if not told.endswith(self._inner):
            return None
        try:
            return _decode_string(told[: 1 - len(self._inner)])
        except _NO_STRING:
            return None

    def _texts(self, bodies: list[bytes]) -> list[str]:
        ending = self._inner + b"\n"
        lines = b'"%b\n' % b'\n"'.join([body.rstrip(b" ") for body in bodies])
        if lines.count(ending) != len(bodies):
            raise ValueError("something else stands behind the text")
        return _decode_strings(lines.replace(ending, b'"\n'))


def learn(
    block: bytes,
    event: JsonObject,
    path: Path,
    pieces: list[str],
    delta: Callable[[str], AnyDelta],
    *,
    data_at: int = 6,
    spaced: bool = False,
) -> Template | None:
    """A template from a block whose data begin at `data_at` and were parsed into `event`, whose only growing text is at
    `path`. `spaced`: blanks before the last brace are padding."""
    padding = next((field for field in PADDING_FIELDS if isinstance(event.get(field), str)), None)
    for found in _value_of(str(path[-1])).finditer(block):
        string = _STRING.match(block, found.end() - 1)
        if string is None:
            return None
        prefix, suffix, marker = block[: string.start() + 1], block[string.end() - 1 :], b""
        expected = _with(event, path)
        if padding is not None:
            pad = _PADDING.search(suffix)
            rest = pad and _STRING.match(suffix, pad.end() - 1)
            if not pad or not rest:
                return None
            marker, suffix = suffix[: pad.end()], suffix[rest.end() - 1 :]
            expected[padding] = _RAW_PADDING.decode()
        if any(map(_ODD_ESCAPE.search, (prefix, marker, suffix))):
            return None  # a secret could stand there in a spelling that is not looked for (J114)
        tail = marker[1:] + _RAW_PADDING + suffix if marker else suffix[1:]
        if _parses_to(prefix[data_at:-1] + _RAW_PROBE + tail, expected):
            if marker:
                return PaddedTemplate(prefix, marker, suffix, pieces, delta)
            before_blanks = suffix[:-1].rstrip(b" ")
            if spaced and suffix.endswith(b"}") and len(before_blanks) > 1:
                return SpacedTemplate(prefix, before_blanks, pieces, delta)
            return Template(prefix, suffix, pieces, delta)
    return None


@cache
def _value_of(field: str) -> re.Pattern[bytes]:
    """Where a string begins that may be the field's value."""
    return re.compile(rb'"%b"\s*:\s*"' % re.escape(field).encode())


def _with(event: JsonObject, path: Path) -> JsonObject:
    """The event with the probe at `path`; what is not on the path is shared."""
    root = event.copy()
    node: Any = root
    for step in path[:-1]:
        node[step] = node[step].copy()
        node = node[step]
    node[path[-1]] = _PROBE
    return root


def _parses_to(data: bytes, expected: JsonObject) -> bool:
    try:
        return bool(_decode_any(data) == expected)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
