"""The part of a decoder that dialects with templates share: from bytes to blocks and runs.

Owns the order: the template of the block before is tried first, then the dialect decodes the block in full.
Never awaits, never raises on what a peer sends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from tailrace.messages import AnyDelta, Dialect, ErrorDelta, EventRunDelta
from tailrace.wire.failure import protocol_error
from tailrace.wire.sse import BLANK_LINE, SseDecoder
from tailrace.wire.templates.template import Path, Template

_MAX_SAMPLES: Final = 4  # unused templates in a row after which learning is given up
_LOOKS: Final = 3  # how often all that remains of a read is looked at together: its cost stays linear, whatever it has


class TemplateSample(msgspec.Struct, frozen=True):
    """What a template can be learnt from: the block of an event, and which of its texts grows. The event itself is not
    kept: decoding the block again costs a microsecond, and a stream may be silent for long."""

    block: bytes
    alike: int  # the next event begins with so many bytes of the block, or the template is of no use
    path: Path
    pieces: list[str]
    make_delta: Callable[[str], AnyDelta]


class TemplateDecoder:
    """Base of a `ports.StreamDecoder`. The dialect decodes blocks, and sets `_template` after one that the next may
    repeat around another text."""

    __slots__ = ("_ended", "_keeps_events", "_sample", "_samples_left", "_sse", "_template", "complete")

    _dialect: Dialect
    _run_name: str  # of the events that have templates

    def __init__(self, *, keep_events: bool, learns: bool) -> None:
        self._keeps_events = keep_events
        self._sse = SseDecoder()
        self._ended = False  # the terminal event or an error came: nothing after it is read
        self.complete = False  # the dialect's terminal event came and no error did
        self._template: Template | None = None  # valid for the block right after the one it was learnt from, and on
        self._samples_left = _MAX_SAMPLES if learns else 0
        self._sample: TemplateSample | None = None  # of the block before: an answer of a word needs no template

    def feed(self, data: bytes) -> list[AnyDelta]:
        template, sse = self._template, self._sse
        if template is not None and sse.is_between and (text := template.text_in(data)) and not self._ended:
            template.pieces.append(text)  # the steady state of a paced stream: one event and nothing else
            if not self._keeps_events:
                return [template.delta(text)]
            run = EventRunDelta(
                self._dialect, self._run_name, template.form, [data[template.start : template.stop]], [text]
            )
            return [run, template.delta(text)]
        deltas: list[AnyDelta] = []
        if self._ended:
            return deltas
        self._decode(sse.take(data), deltas)
        if sse.error is not None and not self._ended:
            self._fail(protocol_error(str(sse.error), sse.error.excerpt), deltas)
        return deltas

    def _decode(self, whole: bytes, deltas: list[AnyDelta]) -> None:
        """Decodes these blocks, each with its blank line, up to the end of the answer."""
        at, end, looks = 0, len(whole), _LOOKS
        while at < end:
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
