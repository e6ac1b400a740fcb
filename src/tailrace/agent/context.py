"""From a history to a request that every provider accepts, and to a shorter history when it has grown too long.

Pure. The history is repaired before each request, never rewritten: what was recorded stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from tailrace.messages import File, Image, Message, Native, Part, Reasoning, Refusal, Text, ToolCall, ToolResult, user
from tailrace.wire.peer_json import without_lone_surrogates
from tailrace.wire.token_estimate import CHARS_PER_TOKEN, message_tokens

LOST_RESULT = "No result was recorded for this call: it was interrupted and may or may not have taken effect."
SUMMARY_PROMPT = (
    "Summarise the conversation so far for your own later use: what the user wants, what was done and found (with "
    "exact names, paths, numbers and decisions), what is still open. Plain text, no preamble."
)
SUMMARY_HEADING = "[Summary of the earlier conversation]\n"
IMAGE_NOTE = "[an image was here; this model cannot see it]"
Kinds: TypeAlias = tuple[type[Image | File], ...]
IMAGES: Final[Kinds] = (Image,)
MEDIA: Final[Kinds] = (Image, File)
_LEAST_OF_RESULT = 500  # characters that stay of what a tool gave


def repaired(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The same conversation with every tool call answered and every result asked for (B39), in that order, each
    call's arguments an object (B34), no lone surrogates (A18) and no empty message."""
    kept = [clean_one for message in messages if (clean_one := cleaned(message)).parts]
    out: list[Message] = []
    for at, message in enumerate(kept):
        rest = tuple(part for part in message.parts if not isinstance(part, ToolResult))
        if rest:
            out.append(Message("user" if message.role == "tool" else message.role, rest))
        if message.role == "assistant" and message.tool_calls:
            given = _results_after(kept, at)
            answers = (given.get(call.id, ToolResult(call.id, LOST_RESULT, False)) for call in message.tool_calls)
            out.append(Message("tool", tuple(answers)))
    return tuple(out)


def _results_after(messages: Sequence[Message], at: int) -> dict[str, ToolResult]:
    """Results that belong to the answer at `at`: those before the next answer, since ids may be used again."""
    found: dict[str, ToolResult] = {}
    for message in messages[at + 1 :]:
        if message.role == "assistant":
            break
        for part in message.parts:
            if isinstance(part, ToolResult):
                found.setdefault(part.call_id, part)
    return found


def cleaned(message: Message) -> Message:
    """The message without lone surrogates, empty texts and arguments that are no object."""
    return Message(message.role, tuple(part for p in message.parts if (part := _clean_part(p)) is not None))


def _clean_part(part: Part) -> Part | None:
    match part:
        case Text(text):
            return Text(without_lone_surrogates(text)) if text else None
        case Refusal(text):
            return Refusal(without_lone_surrogates(text))
        case ToolCall():
            arguments = without_lone_surrogates(part.arguments) if part.parsed() is not None else "{}"
            return ToolCall(part.id, part.name, arguments)
        case ToolResult(content=str() as content):
            return ToolResult(part.call_id, without_lone_surrogates(content), part.ok)
        case Reasoning() | ToolResult() | Image() | File() | Native():
            return part


# ── compression ──────────────────────────────────────────────────────────────────────────────────────────────


def split_for_summary(
    messages: Sequence[Message], *, keep_tokens: int
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """(what to summarise, what stays untouched). The latest turns stay, and the cut falls before a user's message, so
    that no tool call is parted from its result. Where the newest turn alone is too long, its question stays and its
    older steps go. Nothing to summarise: the first is empty."""
    budget = keep_tokens
    cut = last_user = len(messages)
    for at in range(len(messages) - 1, -1, -1):
        budget -= message_tokens(messages[at : at + 1])
        if messages[at].role == "user":
            if last_user == len(messages):
                last_user = at  # the newest question always stays
            if budget >= 0:
                cut = at
    cut = min(cut, last_user)
    if cut == last_user and message_tokens(messages[cut:]) > keep_tokens:
        step = _first_step_kept(messages, cut, keep_tokens)
        if step > cut + 1:
            return tuple(messages[:step]), (messages[cut], *messages[step:])
    return tuple(messages[:cut]), tuple(messages[cut:])


def _first_step_kept(messages: Sequence[Message], question: int, keep_tokens: int) -> int:
    """Where the steps begin that fit beside the question: an answer with its calls and their results is one, and the
    newest always stays."""
    steps = [at for at in range(question + 1, len(messages)) if messages[at].role == "assistant"]
    budget = keep_tokens - message_tokens(messages[question : question + 1])
    first, end = question + 1, len(messages)
    for at in reversed(steps):
        budget -= message_tokens(messages[at:end])
        if budget < 0 and at != steps[-1]:
            break
        first = end = at
    return first


def summary_request(older: Sequence[Message]) -> tuple[Message, ...]:
    """What the model is asked, to make the summary."""
    return (*repaired(older), user(SUMMARY_PROMPT))


def with_shorter_results(messages: Sequence[Message], *, keep_tokens: int) -> tuple[Message, ...]:
    """The same with long texts of tools without their middle, so that all of them together are about so long."""
    texts = [p.content for m in messages for p in m.parts if isinstance(p, ToolResult) and isinstance(p.content, str)]
    room = max(_LEAST_OF_RESULT, _room_for_each(map(len, texts), keep_tokens * CHARS_PER_TOKEN))
    return tuple(Message(message.role, tuple(_shorter(part, room) for part in message.parts)) for message in messages)


def _room_for_each(lengths: Iterable[int], room: int) -> int:
    """The length to which the longest have to be cut, so that all of them fit. What short ones leave is theirs."""
    longest = sorted(lengths)
    for left in range(len(longest), 0, -1):
        share = room // left
        if longest[-left] > share:
            return share
        room -= longest[-left]
    return longest[-1] if longest else 0


def _shorter(part: Part, room: int) -> Part:
    if not isinstance(part, ToolResult) or not isinstance(part.content, str) or len(part.content) <= room:
        return part
    half, text = room // 2, part.content
    note = f"\n[… {len(text) - 2 * half} characters are left out: all of it is too long for you …]\n"
    return ToolResult(part.call_id, text[:half] + note + text[-half:], part.ok)


def with_summary(summary: str, kept: Sequence[Message]) -> tuple[Message, ...]:
    """The history that goes on: the summary where the older messages were. It stands for an earlier one as well."""
    heading = Text(SUMMARY_HEADING + summary.strip() + "\n\n")
    if kept and kept[0].role == "user":
        _, question = split_off_summary(kept[0])
        return (Message("user", (heading, *(part for own in question for part in own.parts))), *kept[1:])
    return (Message("user", (heading,)), *kept)


def split_off_summary(question: Message) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """(the summary that stands before a question in the same message, the question); each is empty or one message."""
    summary = tuple(p for p in question.parts if isinstance(p, Text) and p.text.startswith(SUMMARY_HEADING))
    own = tuple(part for part in question.parts if part not in summary)
    return tuple(Message("user", (part,)) for part in summary), (Message("user", own),) if own else ()


def outweighs(question: Sequence[Message], before: Sequence[Message]) -> bool:
    """Whether the question is what makes a request too long, and not the conversation before it: more than a quarter of
    both. With a shorter one left in, most of the conversation is still short enough to be summarised."""
    return message_tokens(question) * 3 > message_tokens(before)


def has_media(question: Sequence[Message]) -> bool:
    """Whether there is something in it that not every model reads."""
    return any(isinstance(part, Image | File) for message in question for part in message.parts)


def has_images(messages: Sequence[Message]) -> bool:
    """Whether there is an image in them, of a user or of a tool."""
    return any(isinstance(part, Image) or _has_inside(part, IMAGES) for each in messages for part in each.parts)


def without_earlier_media(messages: Sequence[Message], kinds: Kinds = MEDIA) -> tuple[Message, ...]:
    """The same with a note where an image or a file was, for a model that does not take them. Those of the newest
    question stay: an error then says that the model does not read them. `kinds`: which of the two."""
    newest = max((at for at, message in enumerate(messages) if message.role == "user"), default=-1)
    return tuple(message if at == newest else without_media(message, kinds) for at, message in enumerate(messages))


def without_media(message: Message, kinds: Kinds = MEDIA) -> Message:
    """With a note where an image or a file was, in one text with what is said beside it: some servers that take text
    alone take a message of one part alone."""
    if not any(isinstance(part, kinds) or _has_inside(part, kinds) for part in message.parts):
        return message
    parts: list[Part] = []
    for part in (_noted(part, kinds) for part in message.parts):
        if isinstance(part, Text) and parts and isinstance(parts[-1], Text):
            parts[-1] = Text(f"{parts[-1].text}\n{part.text}")
        else:
            parts.append(part)
    return Message(message.role, tuple(parts))


def _has_inside(part: Part, kinds: Kinds) -> bool:
    return isinstance(part, ToolResult) and any(isinstance(inner, kinds) for inner in part.content)


def _noted(part: Part, kinds: Kinds) -> Part:
    match part:
        case Image() if isinstance(part, kinds):
            return Text(IMAGE_NOTE)
        case File() if isinstance(part, kinds):
            return Text(f"[{f'the file {part.name}' if part.name else 'a file'} was here; this model cannot read it]")
        case ToolResult(content=tuple() as content):
            said = tuple(_noted_inside(inner, kinds) for inner in content)
            texts = [inner.text for inner in said if isinstance(inner, Text)]
            return ToolResult(part.call_id, "\n".join(texts) if len(texts) == len(said) else said, part.ok)
        case _:
            return part


def _noted_inside(part: Text | Image | File, kinds: Kinds) -> Text | Image | File:
    noted = _noted(part, kinds)
    return noted if isinstance(noted, Text) else part
