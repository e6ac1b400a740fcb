"""What a model says, in no dialect: the one value that streams and bodies of all three are rendered from.

Owns the blocks of an answer, in order and in the pieces they are streamed in. Knows nothing of any wire.
"""

from __future__ import annotations

import re
from typing import TypeAlias

import msgspec

from tailrace.messages import JsonObject, Stop, Usage, Value

_TOKEN = re.compile(r"\s*\S+|\s+\Z")
_ARGUMENT_PIECE = 7  # characters: short enough to cut strings and escapes in the middle
DEFAULT_INPUT_TOKENS = 25


class Citation(Value):
    """A web page that a text block rests on; `start` and `end` are offsets into the block's text."""

    url: str
    title: str
    start: int = 0
    end: int = 0


class _Streamed(Value):
    pieces: tuple[str, ...]

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class TextBlock(_Streamed, tag="text"):
    citations: tuple[Citation, ...] = ()
    logprobs: bool = False  # chat and responses: with the log probability of each piece


class ThinkingBlock(_Streamed, tag="thinking"):
    """`signature` is what the provider wants back unchanged: Anthropic's signature, Responses' encrypted content."""

    signature: str = ""


class RefusalBlock(_Streamed, tag="refusal"):
    pass


class CallBlock(Value, tag="call"):
    """A tool call; the pieces are those of its arguments' JSON text."""

    name: str
    pieces: tuple[str, ...] = ("{}",)
    id: str = ""  # made up, the same each time, where it is empty

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)


Block: TypeAlias = TextBlock | ThinkingBlock | RefusalBlock | CallBlock


class Reply(Value):
    """One answer of a model. `stop` and `usage` follow from the blocks unless they are given. `stop_sequence` is the
    stop string at which it ended, which only one API says."""

    blocks: tuple[Block, ...] = ()
    stop: Stop | None = None
    usage: Usage | None = None
    stop_sequence: str = ""

    @property
    def calls(self) -> tuple[CallBlock, ...]:
        return tuple(block for block in self.blocks if isinstance(block, CallBlock))

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.blocks if isinstance(block, TextBlock))

    @property
    def refused(self) -> bool:
        return any(isinstance(block, RefusalBlock) for block in self.blocks)

    @property
    def stopped(self) -> Stop:
        return self.stop or ("tools" if self.calls else "end")

    @property
    def counted(self) -> Usage:
        """A piece counts as a token."""
        if self.usage is not None:
            return self.usage
        thought = sum(len(block.pieces) for block in self.blocks if isinstance(block, ThinkingBlock))
        return Usage(
            input_tokens=DEFAULT_INPUT_TOKENS,
            output_tokens=max(1, sum(len(block.pieces) for block in self.blocks)),
            reasoning_tokens=thought,
        )


def say(text: str, *citations: Citation, logprobs: bool = False) -> TextBlock:
    """A text block, streamed a word at a time."""
    return TextBlock(pieces_of(text), citations, logprobs)


def think(text: str, signature: str = "") -> ThinkingBlock:
    return ThinkingBlock(pieces_of(text), signature)


def refuse(text: str) -> RefusalBlock:
    return RefusalBlock(pieces_of(text))


def call(name: str, arguments: JsonObject | str | None = None, id: str = "") -> CallBlock:  # noqa: A002
    """A tool call, its arguments streamed a few characters at a time; text is taken as it stands."""
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode()
    pieces = tuple(text[at : at + _ARGUMENT_PIECE] for at in range(0, len(text), _ARGUMENT_PIECE))
    return CallBlock(name, pieces, id)


def reply(*blocks: Block | str, stop: Stop | None = None, usage: Usage | None = None) -> Reply:
    """`reply("Hello", call("clock"))`: text stands for a text block."""
    return Reply(tuple(say(block) if isinstance(block, str) else block for block in blocks), stop, usage)


def pieces_of(text: str) -> tuple[str, ...]:
    """The words of a text, each with the space before it. Joined they are the text again."""
    return tuple(_TOKEN.findall(text))
