"""How front ends show a run: the ids of its calls, times and token counts. Pure."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime

from tailrace.messages import JsonObject, Usage
from tailrace.server.v1.client_tool_calls import client_call_id


def moment(at: float) -> str:
    """ISO 8601 in UTC, of seconds since the epoch."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def token_counts(usage: Usage, *, counted_apart: int) -> JsonObject:
    """Tokens as front ends count them. `counted_apart`: how many cached tokens `usage` does not have in its input."""
    sent = usage.input_tokens + counted_apart
    return {
        "inputTokens": sent,
        "outputTokens": usage.output_tokens,
        "totalTokens": sent + usage.output_tokens,
        "reasoningTokens": usage.reasoning_tokens,
        "cachedInputTokens": usage.cache_read_tokens,
    }


class ShownCalls:
    """The ids by which a front end knows the calls of a run. `foreign`: the names of the tools that the client runs.

    A call has the same id while it is written and once it is whole, and a call that is made anew takes the id of the
    one that broke off: what names a call is its place in the run, which the recorded messages alone tell too."""

    def __init__(self, run_id: str = "", foreign: Collection[str] = ()) -> None:
        self._run_id, self._foreign = run_id, frozenset(foreign)
        self._ids: dict[int, tuple[str, bool]] = {}  # by index: the id, and whether the client runs it

    def begin(self, index: int, tool_name: str) -> str:
        """The id of a call that is new. Providers use theirs again, so the id is ours."""
        if foreign := tool_name in self._foreign:
            before = sum(is_foreign for at, (_, is_foreign) in self._ids.items() if at < index)
            shown_id = client_call_id(self._run_id, before)
        else:
            shown_id = f"tool_{self._run_id.removeprefix('run_')}_{index}"
        self._ids[index] = shown_id, foreign
        return shown_id

    def id_of(self, index: int | None) -> str | None:
        """None for a call that is not known."""
        return self._ids[index][0] if index is not None and index in self._ids else None

    def is_foreign(self, index: int) -> bool:
        return self._ids[index][1]

    def drop(self, index: int) -> str:
        """The id of a call that broke off."""
        return self._ids.pop(index)[0]
