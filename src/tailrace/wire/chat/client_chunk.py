"""A provider's chunk for a client of the same dialect, with what breaks clients mended: a first chunk without a role,
calls without an index or an id, a finish reason that hides the calls (B36), an answer that came whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.messages import AnyDelta, JsonObject, ToolCallDelta
from tailrace.wire.chat.choice import ChoiceState
from tailrace.wire.chat.completion import finish_reason_for
from tailrace.wire.chat.tool_calls import CALL_FIELDS, function_of, made_call_id
from tailrace.wire.peer_json import objects_of, text_of

_FUNCTION_FIELDS = frozenset({"name", "arguments", "input"})


def mended_chunk(
    chunk: JsonObject, states: Mapping[int, ChoiceState], deltas: Sequence[AnyDelta], answer_id: str
) -> JsonObject | None:
    """The chunk mended; None where there is nothing to mend. `deltas` are those of this chunk."""
    choices = chunk.get("choices")
    if not isinstance(choices, list) or "error" in chunk:
        rest = {name: value for name, value in chunk.items() if name != "error"}
        return {**rest, "choices": _mended_choices(choices, states, deltas, answer_id) or objects_of(choices)}
    mended = _mended_choices(choices, states, deltas, answer_id)
    return None if mended is None else {**chunk, "choices": mended}


def last_chunk(state: ChoiceState, deltas: Sequence[AnyDelta], answer_id: str) -> JsonObject | None:
    """What a choice still owes its client when the answer ends: calls that were held back, or a finish reason."""
    calls = _pieces(state, deltas, answer_id)
    reason = finish_reason_for(state.finish_reason, called=state.tool_calls is not None and bool(state.calls))
    if not calls and reason == state.sent_reason:
        return None
    state.sent_reason = reason
    delta = {"tool_calls": calls} if calls else {}
    return {"choices": [{"index": state.index, "delta": delta, "finish_reason": reason}]}


def _mended_choices(
    choices: object, states: Mapping[int, ChoiceState], deltas: Sequence[AnyDelta], answer_id: str
) -> list[JsonObject] | None:
    mended: list[JsonObject] = []
    changed = False
    for choice in objects_of(choices):
        index = choice.get("index")
        state = states.get(index if isinstance(index, int) else 0)
        changes = {} if state is None else _changes(choice, state, deltas, answer_id)
        changed = changed or bool(changes)
        mended.append({**choice, **changes})
    return mended if changed else None


def _changes(choice: JsonObject, state: ChoiceState, deltas: Sequence[AnyDelta], answer_id: str) -> JsonObject:
    """The fields of this choice that its client is sent otherwise than they came."""
    changes: JsonObject = {}
    delta, whole = choice.get("delta"), choice.get("message")
    if not isinstance(delta, dict) and isinstance(whole, dict) and not state.sent_role:
        delta = changes["delta"] = whole  # the whole answer in one event
    if isinstance(delta, dict):
        if not state.sent_role and not delta.get("role"):
            delta = changes["delta"] = {**delta, "role": "assistant"}
        state.sent_role = True
    items = objects_of(delta.get("tool_calls")) if isinstance(delta, dict) else []
    pieces = _pieces(state, deltas, answer_id)
    # Fields beside those of the dialect are no offence.
    if (items or pieces) and not (len(items) == len(pieces) and all(map(_is_same_piece, items, pieces))):
        _keep_unknown_fields(items, pieces, state)
        changes["delta"] = {**(delta if isinstance(delta, dict) else {}), "tool_calls": pieces}
    reason = choice.get("finish_reason")
    if reason is not None:
        told = None
        if isinstance(reason, str) and reason and reason != "error":
            told = finish_reason_for(reason, called=bool(state.calls))
            state.sent_reason = told
        if told != reason:
            changes["finish_reason"] = told
    return changes


def _pieces(state: ChoiceState, deltas: Sequence[AnyDelta], answer_id: str) -> list[JsonObject]:
    """The pieces of this choice's calls as the dialect writes them: the first has the id, the type and the name."""
    pieces: list[JsonObject] = []
    for delta in deltas:
        if not isinstance(delta, ToolCallDelta) or delta.choice != state.index:
            continue
        if delta.index >= len(state.calls):
            continue  # of `function_call`, which needs no index
        custom = state.calls[delta.index].kind == "custom"
        said: JsonObject = {"input" if custom else "arguments": delta.arguments}
        piece: JsonObject = {"index": delta.index}
        if delta.name:
            kind = state.calls[delta.index].kind or "function"
            piece |= {"id": delta.id or made_call_id(answer_id, delta.index), "type": kind}
            said = {"name": delta.name, **said}
        elif not delta.arguments:
            continue  # an id that came late: the client has one
        pieces.append({**piece, "custom" if custom else "function": said})
    return pieces


def _is_same_piece(item: JsonObject, piece: JsonObject) -> bool:
    function, said = function_of(item), function_of(piece)
    return bool(
        item.get("index") == piece["index"]
        and text_of(item.get("id")) == piece.get("id", "")
        and text_of(function.get("name")) == said.get("name", "")
        and _text(function) == _text(said)
    )


def _text(function: JsonObject) -> Any:
    value = function.get("arguments", function.get("input", ""))
    return value if isinstance(value, str) else None


def _keep_unknown_fields(items: list[JsonObject], pieces: list[JsonObject], state: ChoiceState) -> None:
    """Fields that the dialect does not know (Gemini's `extra_content`) stay with their piece."""
    for position, item in enumerate(items):
        extra = {name: value for name, value in item.items() if name not in CALL_FIELDS}
        inner = {name: value for name, value in function_of(item).items() if name not in _FUNCTION_FIELDS}
        if not extra and not inner:
            continue
        if not pieces:
            pieces.append({"index": max(0, len(state.calls) - 1)})
        piece = pieces[min(position, len(pieces) - 1)]
        piece |= extra
        if inner:
            key = "custom" if "custom" in piece else "function"
            piece[key] = {**piece.get(key, {}), **inner}
