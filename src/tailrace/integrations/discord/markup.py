"""Markdown as Discord reads it, which is not CommonMark: other code blocks, other quotes, and spoilers.

Pure: text in, text out, linear. Takes any text, balanced or not, and never raises.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque

from tailrace.delivery.text import markdown as md
from tailrace.delivery.text.markup import BOXES, columns
from tailrace.delivery.text.parser import FENCE, fence_after, is_link, parser

# What Discord reads as a mark: anywhere, and at the start of a line. An address is left as it is.
_MARK = re.compile(
    r"(?P<address>https?://[^\s<]+)|(?P<blanks>^[ \t]{0,20})(?P<mark>[>#-])|(?P<anywhere>[\\*_~|`\[])", re.MULTILINE
)
_DEEP_HEADING = re.compile(r" {0,3}#{4,6}[ \t]+(.*?)[ \t#]*$")
_TICKS = re.compile(r"(`+)")
# What Discord takes for marks: a spoiler, stars between digits, and whatever there is in math. Math has no other
# beginning of its kind in it: a line of nothing but beginnings is read once.
_NO_MARK = re.compile(
    r"(?P<address>https?://[^\s<]+)|(?P<math>\\\((?:(?!\\\().)+?\\\)|\\\[(?:(?!\\\[).)+?\\\]|\$\$.+?\$\$)"
    r"|(?<!\\)\|{2,}|(?<=\d)\*{1,2}(?=\d)"
)
_NEEDS_WORK = re.compile(r"\|\||```|!\[|\d\*{1,2}\d|\\[(\[]|\$\$")
_NESTED_QUOTE = re.compile(r" {0,3}>(?: ?>)+ ?")
_TASK = re.compile(r"(?P<item>[ \t]*+(?:> ?)?+[ \t]*+(?:[-*+]|\d{1,9}[.)])[ \t]+)\[(?P<done>[ xX])\](?=[ \t]|$)")
# An image, perhaps within a link. Its address may have brackets in it, in pairs. No part gives back what it took, since
# none begins with what the one before it takes: blanks are read once.
_IMAGE = re.compile(
    r"(?P<link>\[)?(?<!\\)!\[(?P<words>[^\[\]]*)\]"
    r"\([ \t]*+<?(?P<url>[^\s()<>]*+(?:\([^\s()<>]*+\)[^\s()<>]*+)*+)>?(?:[ \t]++(?:\"[^\"]*\"|'[^']*'))?+[ \t]*+\)"
    r"(?P<linked>\]\()?"
)
_LANGUAGE = re.compile(r"[A-Za-z0-9_+\-.#]+")
_ZERO_WIDTH_SPACE = "\u200b"


def discord_literal(text: str) -> str:
    """The text with each of Discord's marks escaped: it is shown as it stands."""

    def escaped(found: re.Match[str]) -> str:
        if found["address"]:
            return found[0]
        return f"\\{found['anywhere']}" if found["anywhere"] else f"{found['blanks']}\\{found['mark']}"

    return _MARK.sub(escaped, text)


def discord_markdown(text: str) -> str:
    """Discord reads Markdown itself, but for tables, and for headings below the third."""
    if "|" not in text and "####" not in text:
        return text
    lines, shown, at = md.lines_of(text), [], 0
    for token in parser().parse(text):
        start, end = token.map or (0, 0)
        if token.type == "table_open" and (token.level == 0 or lines[start].lstrip().startswith("|")):
            shown += [*lines[at:start], *_fenced_table(lines[start:end])]
            at = end
        elif token.type == "heading_open" and (deep := _DEEP_HEADING.match(lines[start])):
            shown += [*lines[at:start], f"**{deep[1].replace('**', '')}**"]
            at = end
    return "\n".join(shown + lines[at:])


def _fenced_table(lines: list[str]) -> list[str]:
    indent = lines[0][: -len(lines[0].lstrip())]
    [table] = [block for block in md.blocks("\n".join(line.strip() for line in lines)) if isinstance(block, md.Table)]
    return [indent + line for line in ("```", *columns(table).split("\n"), "```")]


def discord_text(text: str) -> str:
    """The text so that Discord shows what the model meant.

    A code block ends for Discord at the first three backticks, wherever they stand, and begins with no others: those
    within it are parted by a space without width. `||` would hide what follows it, and `>>>` quote all that follows.
    A message of a bot shows no image by its address, and tasks have no boxes.
    """
    fence, shown = "", []
    for line in discord_markdown(text).split("\n"):
        before, fence = fence, fence_after(line, fence)
        if before and fence:
            shown.append(line.replace("```", f"``{_ZERO_WIDTH_SPACE}`"))
        elif before or fence:
            shown.append(_fence_line(line, opens=bool(fence)))
        else:
            shown.append(_prose(_NESTED_QUOTE.sub("> ", line, count=1) if _NESTED_QUOTE.match(line) else line))
    return "\n".join(shown)


def _fence_line(line: str, *, opens: bool) -> str:
    """Of the info string Discord knows the language alone, and would show the rest as code."""
    found = FENCE.fullmatch(line)
    indent = line[: -len(line.lstrip())]
    language = _LANGUAGE.match(found["info"].strip()) if opens and found is not None else None
    return f"{indent}```{language[0] if language else ''}"


def _prose(line: str) -> str:
    """The line with what only Discord takes for a mark escaped, but for code and addresses. Code within a line has two
    backticks at most: three are a block to Discord."""
    line = _TASK.sub(_with_box, line, count=1) if _TASK.match(line) else line
    if not _NEEDS_WORK.search(line):
        return line
    parts = _TICKS.split(line)  # text, backticks, text, …
    ends: dict[str, deque[int]] = defaultdict(deque)
    for at in range(1, len(parts), 2):
        ends[parts[at]].append(at)
    shown, at = [], 0
    while at < len(parts):
        end = _code_end(at, ends[parts[at]]) if at % 2 else None
        if end is not None:
            shown += [parts[at][:2], *parts[at + 1 : end], parts[end][:2]]
        else:
            shown.append(parts[at] if at % 2 else _NO_MARK.sub(_escaped, _IMAGE.sub(_image_link, parts[at])))
        at = at + 1 if end is None else end + 1
    return "".join(shown)


def _code_end(start: int, ends: deque[int]) -> int | None:
    """Where the code ends that begins at `start`; None where it never does. `ends`: the backticks of that number."""
    while ends and ends[0] <= start:
        ends.popleft()
    return ends[0] if ends else None


def _escaped(found: re.Match[str]) -> str:
    if found["math"]:
        return discord_literal(found[0])
    return found[0] if found["address"] else "".join(f"\\{mark}" for mark in found[0])


def _with_box(found: re.Match[str]) -> str:
    return f"{found['item']}{BOXES[found['done'] != ' ']}"


def _image_link(found: re.Match[str]) -> str:
    """The image's words and address. Within a link the words alone: the address is the link's."""
    words, url = found["words"].strip(), found["url"]
    if found["link"] and found["linked"]:
        return f"[{words or 'image'}]("
    shown = (words or url) if not is_link(url) or words in ("", url) else f"{words} ({url})"
    return f"{found['link'] or ''}{shown}{found['linked'] or ''}"
