"""One answer out of several attempts: the text of the earlier ones in the body of the last, read back by the dialect's
own reader, so that the completion says what its body says."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import msgspec

from tailrace.messages import Completion, Message, Reasoning
from tailrace.wire.dialects import DIALECTS

MARK = "tailrace"  # the field in which a joined body says so


def continued(last: Completion, *, shown: str, removed: int) -> Completion:
    """`last`, whose text goes on from `shown` but for its first `removed` characters, as one answer."""
    dialect, body = DIALECTS[last.dialect], copy.deepcopy(last.body)
    slots = list(dialect.text_slots(body))
    for holder, key in slots:
        text = holder[key]
        holder[key] = text[removed:]
        removed -= min(removed, len(text))
    if slots:
        holder, key = slots[0]
        holder[key] = shown + holder[key]
    else:
        dialect.insert_text(body, shown)
    body[MARK] = {"continued": True, "shown_characters": len(shown)}
    joined = dialect.completion_from_body(body)
    if not last.stop_sequence:
        return joined
    return msgspec.structs.replace(joined, finish_reason=last.finish_reason, stop_sequence=last.stop_sequence)


def with_thoughts(last: Completion, begun: Sequence[Completion]) -> Completion:
    """`last`, continued, with what was thought before the cuts. For a client alone: no model gets the thoughts of
    several attempts back as one message's. Those of another dialect have no place in the provider's own body."""
    if not (thoughts := [part for cut in begun for part in cut.message.parts if isinstance(part, Reasoning)]):
        return last
    own = all(each.dialect == last.dialect and each.native is not None for each in thoughts)
    body = DIALECTS[last.dialect].with_thoughts(last.body, thoughts) if own else {}
    return msgspec.structs.replace(last, body=body, message=Message("assistant", (*thoughts, *last.message.parts)))


def without_calls(partial: Completion) -> Completion:
    """A cut answer as it may be kept: no call of it was received for certain, so none is in it (B34)."""
    if not partial.tool_calls:
        return partial
    dialect, body = DIALECTS[partial.dialect], copy.deepcopy(partial.body)
    dialect.remove_calls(body)
    return dialect.completion_from_body(body)
