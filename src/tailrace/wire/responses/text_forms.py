"""The kinds of text in a response: the item, the part and the events that each has."""

from __future__ import annotations

import msgspec

from tailrace.messages import AnyDelta, JsonObject, ReasoningDelta, RefusalDelta, TextDelta


class TextForm(msgspec.Struct, frozen=True):
    """The item, part and events of one kind of text."""

    item: str
    prefix: str  # of the item's id
    parts: str  # the item's list
    part: JsonObject  # one of its objects, bare
    field: str
    part_event: str
    text_event: str
    index: str  # the events' key for the place in the list


_TEXT_PART = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
FORMS: dict[type[AnyDelta], TextForm] = {
    TextDelta: TextForm(
        *("message", "msg", "content", _TEXT_PART, "text"),
        *("response.content_part", "response.output_text", "content_index"),
    ),
    RefusalDelta: TextForm(
        *("message", "msg", "content", {"type": "refusal", "refusal": ""}, "refusal"),
        *("response.content_part", "response.refusal", "content_index"),
    ),
    # Readers of this API show summaries; few show raw reasoning text.
    ReasoningDelta: TextForm(
        *("reasoning", "rs", "summary", {"type": "summary_text", "text": ""}, "text"),
        *("response.reasoning_summary_part", "response.reasoning_summary_text", "summary_index"),
    ),
}


class OpenText:
    """An open text: the fields that its events repeat, and its pieces so far."""

    __slots__ = ("_counted", "_length", "annotations", "head", "item", "keys", "logprobs", "pieces")

    def __init__(self, event: str, item: JsonObject, keys: JsonObject) -> None:
        self.item = item
        self.keys = keys
        self.pieces: list[str] = []
        self._counted = self._length = 0  # the pieces whose characters are counted, and these
        self.annotations: list[JsonObject] = []
        self.logprobs: list[JsonObject] = []
        fields: JsonObject = {"type": f"{event}.delta", **keys}
        if event == "response.output_text":
            fields["logprobs"] = []
        body = msgspec.json.encode(fields)[:-1]
        self.head = b'event: %b.delta\ndata: %b,"sequence_number":' % (event.encode(), body)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def length(self) -> int:
        """The characters of the text. Counts what was added since it was last asked for."""
        self._length += sum(map(len, self.pieces[self._counted :]))
        self._counted = len(self.pieces)
        return self._length
