"""The header of an answer that tests encode."""

from __future__ import annotations

from typing import Any

from tailrace.messages import Dialect
from tailrace.wire.dialects import DIALECTS
from tailrace.wire.relay import AnswerHeader


def header(source: Dialect, answer_id: str, *, model: str = "m", created: int = 5, **fields: Any) -> AnswerHeader:
    return AnswerHeader(answer_id, model, created, DIALECTS[source], **fields)
