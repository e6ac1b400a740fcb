"""The fast path for the bulk of a stream: events that differ from the one before in a single string.

From an event that was parsed in full the template learns the bytes before and after the text. This is exact: the string
goes through the same JSON decoder, and a place is accepted only if a probe put there parses into the same event with
the probe as its text. Servers pad their events against traffic analysis, in a field or with blanks before the last
brace."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, Final, TypeAlias

import msgspec

from tailrace.errors import PeerError
from tailrace.messages import AnyDelta, Dialect, ErrorDelta, EventForm, EventRunDelta, JsonObject
from tailrace.wire.failure import protocol_error, stream_cut
from tailrace.wire.peer_json import GLUED
from tailrace.wire.sse import BLANK_LINE, SseDecoder, without_comments

_string_decoder = msgspec.json.Decoder(str)
_decode_string, _decode_strings = _string_decoder.decode, _string_decoder.decode_lines
_decode_any = msgspec.json.Decoder().decode
_NO_STRING = (msgspec.DecodeError, UnicodeDecodeError)
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_INSIDE: Final = rb'[^"\\]*+(?:\\.[^"\\]*+)*+'  # the quotes of a JSON string, in any spelling
_ODD_ESCAPE = re.compile(rb"(?<!\\)(?:\\\\)*\\[/u]")  # that our own JSON does not have
_PADDING = re.compile(rb'"(?:obfuscation|p)"\s*:\s*"')
_COLON: Final = 0x3A
_PROBE = "tailrace-probe"
_RAW_PROBE = b'"tailrace-probe"'
_RAW_PADDING = b"abc123"
Path: TypeAlias = tuple[str | int, ...]
PADDING_FIELDS = ("obfuscation", "p")  # random text against traffic analysis: OpenAI's and Mistral's name for it
_PLAIN: Final = (
    rb"(?:[ !#-\[\]-~]++|\\[\"\\bfnrt]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|\xed[\x80-\x9f][\x80-\xbf]"
    rb"|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}"
    rb"|\xf4[\x80-\x8f][\x80-\xbf]{2})++"
)  # of the bytes between the quotes of a JSON string: they are one, in the usual spelling, and not empty (M153: linear)
_MAX_SAMPLES: Final = 4  # unused templates in a row after which learning is given up
_LOOKS: Final = 3  # how often all that remains of a read is looked at together: its cost stays linear, whatever it has


def joined(pieces: list[str]) -> str:
    """Their text, which takes their place: a long one is not kept twice (O178)."""
    if len(pieces) > 1:
        pieces[:] = ["".join(pieces)]
    return pieces[0] if pieces else ""


class Template:
    """Bytes around the text, and where the text goes. In this form nothing but the text varies, and the padding against
    traffic analysis that some servers put behind it."""

    __slots__ = (
        *("_line_start", "_lines", "_padding", "_split", "delta", "emits_empty", "form", "pieces", "start", "stop"),
        "used_from",
    )

    def __init__(
        self, prefix: bytes, suffix: bytes, pieces: list[str], delta: Callable[[str], AnyDelta], padding: bytes = b""
    ) -> None:
        """`prefix` ends with the quote that opens the text, `suffix` begins with what closes all that varies: the text,
        and behind it what the expression `padding` means."""
        suffix += BLANK_LINE
        self.form = EventForm(prefix, suffix, suffix + prefix)
        self.start, self.stop = len(prefix), -len(suffix)  # of what varies in an event of this form
        self._lines = prefix.count(b"\n")  # before the line with the text
        self._line_start = self.start - prefix.rfind(b"\n") - 1
        self.pieces = pieces  # takes the decoded text
        self.delta = delta
        self.used_from = len(pieces)
        self.emits_empty = False  # an empty text has a delta too
        self._padding = padding
        self._split = _matcher(rb"(%b)%b" % (_INSIDE, padding)) if padding else None

    @property
    def is_plain(self) -> Callable[[bytes], object]:
        """Says of what varies in an event whether it is a text in the usual spelling, and the padding."""
        return _matcher(_PLAIN + self._padding)

    @property
    def was_used(self) -> bool:
        return len(self.pieces) != self.used_from  # fewer: they were joined

    def text_in(self, event: bytes) -> str | None:
        """The text, or None where this event, with its blank line, is not the template around one JSON string."""
        form = self.form
        if not event.startswith(form.prefix) or not event.endswith(form.suffix):
            return None
        string = event[self.start - 1 : self.stop + 1]
        if self._split is not None:
            if (parts := self._split(event[self.start : self.stop])) is None:
                return None
            string = b'"%b"' % parts[1]
        try:
            return _decode_string(string)
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
        """Lines are cut by their lengths alone; putting them together again shows that they are of this form."""
        form, start, stop = self.form, self._line_start, self.stop + len(BLANK_LINE)
        bodies = [line[start:stop] for line in run[:-2].split(b"\n")[self._lines :: self._lines + 2]]
        if b"%b%b%b" % (form.prefix, form.turn.join(bodies), form.suffix) != run:
            return None
        try:
            texts = self.texts_of(bodies)
        except (*_NO_STRING, ValueError):
            return None
        return (bodies, texts) if len(texts) == len(bodies) else None

    def texts_of(self, bodies: list[bytes]) -> list[str]:
        """As many texts as bodies, or the bodies are not of this form; so too where this raises `ValueError`,
        `msgspec.DecodeError` or `UnicodeDecodeError`."""
        if (split := self._split) is None:
            return _decode_lines(bodies)
        if None in (found := [split(body) for body in bodies]):
            raise ValueError("something else stands behind the text")
        return _decode_lines([parts[1] for parts in found if parts is not None])


def _decode_lines(strings: Sequence[bytes]) -> list[str]:
    """The JSON strings with these bytes between their quotes: none has a bare line end or quote."""
    return _decode_strings(b'"%b"' % b'"\n"'.join(strings))


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
                return Template(prefix, suffix, pieces, delta, re.escape(marker) + rb"[0-9A-Za-z]*")
            before_blanks = suffix[:-1].rstrip(b" ")
            if spaced and suffix.endswith(b"}") and len(before_blanks) > 1:
                return Template(prefix, b"}", pieces, delta, re.escape(before_blanks) + rb" *")
            return Template(prefix, suffix, pieces, delta)
    return None


@lru_cache(maxsize=64)
def _matcher(pattern: bytes) -> Callable[[bytes], re.Match[bytes] | None]:
    return re.compile(pattern, re.DOTALL).fullmatch


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


# ── the decoder around them ──────────────────────────────────────────────────────────────────────────────────


class TemplateSample(msgspec.Struct, frozen=True):
    """What a template can be learnt from: the block of an event, which is decoded again, and which text grows."""

    block: bytes
    alike: int  # the next event begins with so many bytes of the block, or the template is of no use
    path: Path
    pieces: list[str]
    make_delta: Callable[[str], AnyDelta]


class TemplateDecoder:
    """Base of a `ports.StreamDecoder`. The dialect decodes blocks, and sets `_template` or `_sample`."""

    __slots__ = (
        *("_ended", "_is_paced", "_keeps_events", "_sample", "_samples_left", "_sse", "_template"),
        *("complete", "skipped"),
    )

    _dialect: Dialect
    _run_name: str  # of the events that have templates

    def __init__(self, *, keep_events: bool, learns: bool) -> None:
        self._keeps_events = keep_events
        self._sse = SseDecoder()
        self._is_paced = False  # the last read was one event of the template and nothing else
        self._ended = False  # the terminal event or an error came: nothing after it is read
        self.complete = False  # the dialect's terminal event came and no error did
        self.skipped = ""  # why one event of the stream was left out
        self._template: Template | None = None  # valid for the block right after the one it was learnt from, and on
        self._samples_left = _MAX_SAMPLES if learns else 0
        self._sample: TemplateSample | None = None  # of the block before: an answer of a word needs no template

    def feed(self, data: bytes) -> list[AnyDelta]:
        template, sse = self._template, self._sse
        if template is not None and sse.is_between and (text := template.text_in(data)) and not self._ended:
            template.pieces.append(text)  # the steady state of a paced stream
            self._is_paced = True
            if not self._keeps_events:
                return [template.delta(text)]
            run = EventRunDelta(
                self._dialect, self._run_name, template.form, [data[template.start : template.stop]], [text]
            )
            return [run, template.delta(text)]
        self._is_paced = False
        deltas: list[AnyDelta] = []
        if self._ended:
            return deltas
        self._decode(sse.take(data), deltas)
        if sse.error is not None and not self._ended:
            self._fail(protocol_error(str(sse.error), sse.error.excerpt), deltas)
        return deltas

    def relayable(self) -> Template | None:
        """What the next read most likely is: one event of this form, which can be relayed unread. Where a read has
        more, the usual way costs a fifth less (bench gateway, flat)."""
        return self._template if self._is_paced and self._keeps_events and not self._ended else None

    def relayed(self, bodies: list[bytes]) -> list[AnyDelta]:
        """The deltas of events of that form that were relayed unread: what varies in each."""
        deltas: list[AnyDelta] = []
        if (template := self._template) is not None:
            self._grow_by(template, bodies, template.texts_of(bodies), deltas)
        return deltas

    def _decode(self, whole: bytes, deltas: list[AnyDelta]) -> None:
        """Decodes these blocks, each with its blank line, up to the end of the answer."""
        at, end, looks, has_comments = 0, len(whole), _LOOKS, True
        while at < end:
            if has_comments and whole[at] == _COLON:  # once: the cost stays linear
                whole, at, has_comments = without_comments(whole[at:]), 0, False
                end = len(whole)
                continue
            template = self._template
            if template is None and self._sample is not None:
                template = self._template_for(self._sample, whole, at)
            if template is not None:
                bodies, texts, stop = template.bodies_in(whole, at, at_once=looks > 0)
                looks -= 1
                if texts:
                    self._grow_by(template, bodies, texts, deltas)
                    at = stop
                    continue
            stop = whole.find(BLANK_LINE, at)
            if stop < 0 or self._decode_block(whole[at:stop], deltas):
                return  # a line end too many, or the end of the answer
            at = stop + 2

    def _decode_block(self, block: bytes, deltas: list[AnyDelta]) -> bool:
        """Decodes any block in full. True where it ended the answer."""
        raise NotImplementedError

    def _grow_by(self, template: Template, bodies: list[bytes], texts: list[str], deltas: list[AnyDelta]) -> None:
        """Consecutive events have this form."""
        if self._keeps_events:
            text = "".join(texts)
            run = EventRunDelta(self._dialect, self._run_name, template.form, bodies, texts)
            if text or template.emits_empty:
                template.pieces.append(text)
                deltas += (run, template.delta(text))
            else:
                deltas += run.events()
        else:
            said = texts if template.emits_empty else [text for text in texts if text]
            template.pieces += said
            deltas += map(template.delta, said)

    def _fail(self, error: ErrorDelta, deltas: list[AnyDelta]) -> None:
        self._ended = True
        deltas.append(error)

    def _skip(self, exc: PeerError, deltas: list[AnyDelta]) -> None:
        """Leaves out the one event of a stream that cannot be read (N157). A second one fails the answer, and so do
        several in one (A14), and one before which nothing of it came."""
        if self.skipped or exc.code == GLUED or not self._has_begun():
            self._fail(protocol_error(str(exc), exc.excerpt), deltas)
        self.skipped = str(exc)

    def _fail_unended(self, message: str, deltas: list[AnyDelta]) -> None:
        """The stream has ended without its terminal event."""
        self._fail(protocol_error(self.skipped) if self.skipped else stream_cut(message), deltas)

    def _has_begun(self) -> bool:
        raise NotImplementedError

    def _from_sample(self, sample: TemplateSample) -> Template | None:
        """The template, where there is one. For a dialect that sets `_sample`."""
        raise NotImplementedError

    def _template_for(self, sample: TemplateSample, whole: bytes, at: int) -> Template | None:
        """The template is made when the next event begins alike."""
        self._sample = None
        if whole.startswith(sample.block[: sample.alike], at):
            self._samples_left -= 1
            self._template = self._from_sample(sample)
        return self._template

    def _forget_template(self) -> None:
        """Another event may change what the template holds constant. After a used one, learning restarts."""
        if self._template is not None and self._template.was_used:
            self._samples_left = _MAX_SAMPLES
        self._template = None
