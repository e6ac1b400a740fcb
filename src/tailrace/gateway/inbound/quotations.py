"""What a message refers to, as the model reads it above the typed text: the one writer of `Quoted`. Pure.

Every quoted line stands behind a `>`, and every name in quotation marks, so that neither can pass for a line of the
chat's own. `[in reply to you]` is the bot itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tailrace.delivery.planning.presenter import quotation, shortened
from tailrace.delivery.port import MessageReceived, Quoted
from tailrace.events.speakers import one_line_name

MAX_OF_THREAD = 30  # messages that are quoted of a thread: its first one and the newest
MAX_THREAD_CHARS = 2000  # of one of them
UNREAD_THREAD = Quoted(kind="thread", what="a thread that could not be read")


def quoted_thread(above: Sequence[Quoted], *, is_whole: bool = True) -> tuple[Quoted, ...]:
    """The first message of a thread and the newest, with a line in the place of those between. `is_whole`: the adapter
    has read all of it."""
    left_out = max(0, len(above) - MAX_OF_THREAD)
    if is_whole and not left_out:
        return tuple(above)
    what = f"{f'{left_out} ' if is_whole else ''}more messages, which are left out here"
    return (*above[:1], Quoted(kind="thread", what=what), *above[1:][-(MAX_OF_THREAD - 1) :])


def quotations_of(message: MessageReceived) -> str:
    """All that the message refers to; empty where that is nothing."""
    return "\n".join(map(_written, message.quoted))


def with_quotations(message: MessageReceived) -> str:
    """The typed text below what it refers to."""
    return "\n\n".join(filter(None, (quotations_of(message), message.text)))


def with_quoted_files(message: MessageReceived) -> MessageReceived:
    """The message with the files of what it replies to or forwards beside its own."""
    files = (file for one in message.quoted if one.kind != "thread" for file in one.files)
    return replace(message, attachments=(*message.attachments, *files))


def _written(quoted: Quoted) -> str:
    text = quoted.text
    if quoted.kind == "thread" and len(text) > MAX_THREAD_CHARS:
        text = text[: MAX_THREAD_CHARS - 1] + "…"
    if quoted.kind == "thread" and quoted.files:
        names = ", ".join(one_line_name(file.name) or "without a name" for file in quoted.files)
        text = f"{text}\n(files: {names})"
    if quoted.kind == "reply":
        text = shortened(text)
    return "\n".join(filter(None, (f"[{_head(quoted)}]", quotation(text))))


def _head(quoted: Quoted) -> str:
    name = one_line_name(quoted.author)
    if quoted.kind == "forward":
        return f'forwarded from "{name}"' if name else "forwarded"
    if quoted.what:
        return f'in reply to {quoted.what} of "{name}"' if name else f"in reply to {quoted.what}"
    return "in reply to " + ("you" if quoted.is_ours else f'"{name}"' if name else "a message")
