"""Events of a provider that are relayed, whatever their fields hold."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tailrace.messages import EventDelta, TextDelta
from tailrace.wire.responses.encode import StreamEncoder
from wire.headers import header


def event(**fields: Any) -> EventDelta:
    return EventDelta("responses", fields["type"], msgspec.json.encode(fields))


@pytest.mark.parametrize("odd", [None, [], {}, 7, True, "x"])
def test_fields_of_any_kind_never_crash_a_relayed_answer(odd: object) -> None:
    encoder = StreamEncoder(header("responses", "resp_1", created=0))
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": ""}
    encoder.encode(
        [
            event(type="response.output_item.added", output_index=0, item={"type": "message", "content": odd}),
            event(type="response.content_part.added", **place, part=odd),
            event(type="response.content_part.done", **place, part=part),
            event(type="response.content_part.added", **place, part=part),
            event(type="response.output_text.delta", **place, delta=odd),
        ]
    )
    encoder.new_attempt()
    encoder.encode([TextDelta("on.")])
    assert b"response.completed" in encoder.close()
