"""Which provider made the opaque items of a conversation (signed thoughts, encrypted reasoning, blocks of a server's
own tool): another provider refuses the whole request over them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeGuard

import msgspec

from tailrace.messages import Completion, Message, Native, Part, Reasoning
from tailrace.wire.dialects import DIALECTS

Item: TypeAlias = Reasoning | Native


def with_maker(completion: Completion, *, provider: str, model: str) -> Completion:
    """The completion with its maker's name on every opaque item."""
    maker = f"{provider}/{model}"
    return _with_items(completion, lambda item: msgspec.structs.replace(item, maker=maker))


def without_opaque_items(completion: Completion) -> Completion:
    """The completion without opaque items: those of an answer that broke off may not be whole. Thoughts stay
    readable."""
    return _with_items(completion, _text_alone)


def replayable_messages(messages: Sequence[Message], *, provider: str, model: str) -> tuple[Message, ...]:
    """The same conversation without opaque items that another provider made."""

    def kept(item: Item) -> Part | None:
        return item if _is_at_home(item, provider, model) else _text_alone(item)

    return tuple([_changed(each, kept) for each in messages])


def _is_at_home(item: Item, provider: str, model: str) -> bool:
    made_at, _, made_by = item.maker.partition("/")
    honours = item.dialect is not None and DIALECTS[item.dialect].honours_signature(made_by, model)
    return made_at in ("", provider) or honours


def _text_alone(item: Item) -> Part | None:
    return Reasoning(item.text) if isinstance(item, Reasoning) else None


def _with_items(completion: Completion, change: Callable[[Item], Part | None]) -> Completion:
    message = _changed(completion.message, change)
    return completion if message is completion.message else msgspec.structs.replace(completion, message=message)


def _changed(message: Message, change: Callable[[Item], Part | None]) -> Message:
    """The message with each opaque item as `change` has it; None leaves it out."""
    if not any(map(_is_opaque, message.parts)):  # nearly always
        return message
    parts = (change(part) if _is_opaque(part) else part for part in message.parts)
    return Message(message.role, tuple(part for part in parts if part is not None))


def _is_opaque(part: Part) -> TypeGuard[Item]:
    return isinstance(part, Native) or (isinstance(part, Reasoning) and part.native is not None)
