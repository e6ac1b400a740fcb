"""What an MCP server asks a person in the middle of a call (elicitation), as a question with the answers yes and no.

A yes fills the form in where that needs no writing: a box to tick, a default, the only choice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitRequestURLParams, ElicitResult

OnElicit: TypeAlias = Callable[[ElicitRequestParams], Awaitable[ElicitResult]]
DECLINED: Final = ElicitResult(action="decline")


def question_text(server: str, params: ElicitRequestParams) -> str:
    """All that a yes says: the words of the server, and where it leads or what it fills in."""
    asks = f"The MCP server {server} asks: {params.message}"
    if isinstance(params, ElicitRequestURLParams):
        return f"{asks}\nYes opens nothing here: go to {params.url}"
    filled = content_of(dict(params.requested_schema)) or {}
    return "\n".join([asks, *(f"{name}: {value}" for name, value in filled.items())])


def content_of(schema: dict[str, Any]) -> dict[str, Any] | None:
    """What a plain yes fills the form with; None where a person would have to write something."""
    content: dict[str, Any] = {}
    for name, field in (schema.get("properties") or {}).items():
        choices: list[Any] = field.get("enum") or []
        if "default" in field:
            content[name] = field["default"]
        elif field.get("type") == "boolean":
            content[name] = True
        elif len(choices) == 1:
            content[name] = choices[0]
        elif name in (schema.get("required") or ()):
            return None
    return content


async def answer(server: str, params: ElicitRequestParams, ask: Callable[[str], Awaitable[bool]]) -> ElicitResult:
    """A form that a yes cannot fill in is declined unasked."""
    form = params.requested_schema if isinstance(params, ElicitRequestFormParams) else None
    content = content_of(dict(form)) if form is not None else None
    if (form is not None and content is None) or not await ask(question_text(server, params)):
        return DECLINED
    return ElicitResult(action="accept", content=content)
