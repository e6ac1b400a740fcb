"""A search of the web that the provider makes itself, in the words of each dialect."""

from __future__ import annotations

import re

from tailrace.messages import JsonObject, NamedTool, WebSearch
from tailrace.wire.peer_json import object_of, objects_of, text_of

NAME = "web_search"  # of the tool, where a choice names it
_KIND = re.compile(r"web_search(_preview)?(_20\d\d(_\d\d_\d\d|\d{4}))?")  # with the versions of both vendors
_ANTHROPIC = "web_search_20250305"
_PLACE = ("country", "region", "city", "timezone")


def is_web_search(tool: object) -> bool:
    """Of a tool, or of a choice of one."""
    kind = tool.get("type") if isinstance(tool, dict) else None
    return isinstance(kind, str) and _KIND.fullmatch(kind) is not None


def is_allowed(choice: object) -> bool:
    """Whether a choice of `allowed_tools` leaves the search in; any other choice does."""
    if not isinstance(choice, dict) or choice.get("type") != "allowed_tools":
        return True
    return any(map(is_web_search, objects_of(choice.get("tools"))))


def from_options(options: JsonObject) -> WebSearch:
    """`web_search_options` of a chat request."""
    place = object_of(object_of(options.get("user_location")).get("approximate"))
    return WebSearch("web_search_options", location=_place(place), context_size=text_of(_size(options)))


def from_tool(tool: JsonObject) -> WebSearch:
    """The tool of either of the other two APIs."""
    limits = object_of(tool.get("filters")) or tool
    uses = tool.get("max_uses")
    return WebSearch(
        f"tools.{text_of(tool.get('type'))}",
        allowed_domains=_domains(limits.get("allowed_domains")),
        blocked_domains=_domains(limits.get("blocked_domains")),
        location=_place(object_of(tool.get("user_location"))),
        context_size=text_of(_size(tool)),
        max_uses=uses if isinstance(uses, int) else None,
    )


def responses_tool(search: WebSearch) -> JsonObject:
    tool: JsonObject = {"type": NAME}
    if search.allowed_domains:
        tool["filters"] = {"allowed_domains": list(search.allowed_domains)}
    if search.context_size:
        tool["search_context_size"] = search.context_size
    return tool | _user_location(search)


def anthropic_tool(search: WebSearch) -> JsonObject:
    """The API takes the domains to search or those to leave out, not both."""
    tool: JsonObject = {"type": _ANTHROPIC, "name": NAME}
    if search.max_uses is not None:
        tool["max_uses"] = search.max_uses
    if search.allowed_domains:
        tool["allowed_domains"] = list(search.allowed_domains)
    elif search.blocked_domains:
        tool["blocked_domains"] = list(search.blocked_domains)
    return tool | _user_location(search)


def setting_words(search: WebSearch, **settings: object) -> list[str]:
    """The client's words for those of its settings that have a value."""
    return [f"{search.word}.{name}" for name, value in settings.items() if value]


def is_chosen(choice: object, search: WebSearch | None) -> bool:
    """Whether the choice of a tool is the search."""
    return search is not None and isinstance(choice, NamedTool) and choice.name == NAME


def _user_location(search: WebSearch) -> JsonObject:
    return {"user_location": {"type": "approximate", **search.location}} if search.location else {}


def _place(given: JsonObject) -> dict[str, str]:
    return {name: value for name in _PLACE if isinstance(value := given.get(name), str) and value}


def _domains(given: object) -> tuple[str, ...]:
    return tuple(domain for domain in given if isinstance(domain, str)) if isinstance(given, list) else ()


def _size(given: JsonObject) -> object:
    """Medium is what every API means by itself."""
    size = given.get("search_context_size")
    return "" if size == "medium" else size
