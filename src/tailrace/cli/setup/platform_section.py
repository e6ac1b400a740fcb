"""A platform's section in the text of a config: added as lines, every other line left as it is.

YAML is edited as text, because a file that is parsed and written again loses its comments and its order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from tailrace.errors import ConfigError

_PLATFORMS = re.compile(r"^platforms[ \t]*:(.*)$", re.MULTILINE)
_INDENTED = re.compile(r"([ \t]+)\S")


def section_lines(name: str, settings: Mapping[str, object], indent: str = "  ") -> str:
    """The section as it would be typed. Values are written as JSON, which is YAML."""
    lines = [f"{indent}{name}:", f"{indent * 2}enabled: true"]
    lines += [f"{indent * 2}{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in settings.items()]
    return "\n".join(lines) + "\n"


def with_platform(text: str, name: str, settings: Mapping[str, object]) -> str:
    """Raises `ConfigError` where the lines must be added by hand, and names them."""
    if text and not text.endswith("\n"):
        text += "\n"
    if (found := _PLATFORMS.search(text)) is None:
        gap = "\n" if text.strip() else ""
        return f"{text}{gap}platforms:\n{section_lines(name, settings)}"
    if found[1].split("#")[0].strip() not in ("", "{}", "null", "~"):
        raise ConfigError("stands on one line, so it is not changed; add by hand: " + _by_hand(name, settings))
    end = found.end() + 1
    head = text[: found.start()] + "platforms:" + _comment(found[1]) + "\n"
    below = next((line for line in text[end:].splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    indented = _INDENTED.match(below)
    return head + section_lines(name, settings, indented[1] if indented else "  ") + text[end:]


def _comment(rest: str) -> str:
    _, hash_, comment = rest.partition("#")
    return f"  #{comment}" if hash_ else ""


def _by_hand(name: str, settings: Mapping[str, object]) -> str:
    return f"{name}: {json.dumps({'enabled': True, **settings}, ensure_ascii=False)}"
