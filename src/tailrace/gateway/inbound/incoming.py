"""What an incoming message is: one ordered table of predicates. The first row that holds decides.

Pure: no I/O, no clock, no platform. A fact that costs a look into the journal is named only when a row needs it:
`decide` then returns the fact's name, and is called again with the fact. With the logger `tailrace.gateway` at debug
level `Conversations` prints the trace: which rows were asked, and which one decided.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

from tailrace.app.slash_commands import ChatCommand, command_in, command_meant, is_unknown_command
from tailrace.delivery.port import MessageReceived

MessageKind = Literal[
    "command",  # carried out
    "unknown_command",  # answered with a hint: as a question it would end the answer under way
    "not_for_us",  # left alone; an edit may address it to the bot, and then it comes again
    "mention_alone",  # the bot's name and nothing else: /help
    "answer_by_word",  # "yes" to a question for approval: answered with the commands that do answer it
    "part_of_paste",  # held until the rest has come
    "question",  # a turn begins, with the held part of the same paste where there is one
]
Fact = Literal["in_conversation", "open_question"]
OpenQuestion = Literal["none", "theirs", "others"]  # for approval: whose, seen from the sender

_WORDS = re.compile(r"[^\W_]+")
_YES_OR_NO = re.compile(
    r"(y|yes|yeah|yep|ok|okay|sure|ja|oui|s[ií]|da|да|はい|是)( please)?|do it|go ahead|always|allow|"
    r"approved?( once| session| always)?|(n|no|nope|nein|non|нет|いいえ|不)( thanks)?|don t|deny|denied|cancel"
)
_THUMBS = frozenset("👍👎✅❌")


class FactNeeded(Exception):
    def __init__(self, fact: Fact) -> None:
        super().__init__(fact)
        self.fact = fact


class Incoming(NamedTuple):
    """A message, and all that is known about where it came."""

    message: MessageReceived
    respond: Literal["mentions", "all"] = "mentions"
    is_whole_chat: bool = False  # outside of the threads of a chat in which each thread is a conversation
    continues_paste: bool = False  # a part of the same paste is held
    in_conversation: bool | None = None  # it stands in a thread that is a conversation of the bot; None: not known yet
    open_question: OpenQuestion | None = None  # in this place; None: not known yet

    @property
    def is_for_us(self) -> bool:
        """In a group only what is addressed to the bot, unless `respond` is "all"."""
        return self.message.place.kind == "private" or self.respond == "all" or self.message.addressed

    @property
    def is_text_alone(self) -> bool:
        return not self.message.attachments

    def needed_in_conversation(self) -> bool:
        if self.in_conversation is None:
            raise FactNeeded("in_conversation")
        return self.in_conversation

    def needed_open_question(self) -> OpenQuestion:
        if self.open_question is None:
            raise FactNeeded("open_question")
        return self.open_question


def is_yes_or_no(text: str) -> bool:
    """Whether the text is nothing but a word that agrees or refuses. It is too little to approve a command, since it
    may be about anything, and no question to the model while one for an approval is open."""
    return bool(_YES_OR_NO.fullmatch(" ".join(_WORDS.findall(text.lower())))) or text.strip() in _THUMBS


def command_of(message: MessageReceived) -> ChatCommand | None:
    """The command that the message is. In a group it needs no mention, and no other bot's name."""
    return command_in(message.text) if not (message.attachments or message.to_others) else None


def _is_command(incoming: Incoming) -> bool:
    return command_of(incoming.message) is not None


def _is_unknown_command(incoming: Incoming) -> bool:
    """In a shared chat a command that is none of ours may be another bot's."""
    text = incoming.message.text
    if not (incoming.is_text_alone and is_unknown_command(text)):
        return False
    if incoming.is_for_us or incoming.is_whole_chat:
        return True
    if not incoming.message.to_others and incoming.needed_in_conversation():
        return True
    return command_meant(text) is not None and incoming.needed_open_question() == "theirs"


def _is_not_for_us(incoming: Incoming) -> bool:
    """What continues a paste belongs to it: one photo of an album alone has the caption that mentions the bot."""
    if incoming.is_for_us or incoming.continues_paste:
        return False
    return incoming.message.to_others or not incoming.needed_in_conversation()


def _is_mention_alone(incoming: Incoming) -> bool:
    message = incoming.message
    return not (message.text.strip() or message.attachments or message.quoted or message.reply_to)


def _is_answer_by_word(incoming: Incoming) -> bool:
    is_word = incoming.is_text_alone and is_yes_or_no(incoming.message.text)
    return is_word and incoming.needed_open_question() != "none"


class Row(NamedTuple):
    kind: MessageKind
    holds: Callable[[Incoming], bool]


ROWS = (
    Row("command", _is_command),
    Row("unknown_command", _is_unknown_command),
    Row("not_for_us", _is_not_for_us),
    Row("mention_alone", _is_mention_alone),
    Row("answer_by_word", _is_answer_by_word),
    Row("part_of_paste", lambda incoming: incoming.message.at_limit),
    Row("question", lambda _: True),
)


class Decision(NamedTuple):
    kind: MessageKind
    trace: str  # the rows that did not hold, and the one that did: "command unknown_command not_for_us: question"


def decide(incoming: Incoming) -> Decision | Fact:
    """What the message is, or the fact without which that cannot be said."""
    passed: list[str] = []
    for row in ROWS:
        try:
            if row.holds(incoming):
                return Decision(row.kind, f"{' '.join(passed)}: {row.kind}".lstrip(": "))
        except FactNeeded as needed:
            return needed.fact
        passed.append(row.kind)
    raise AssertionError("the last row always holds")
