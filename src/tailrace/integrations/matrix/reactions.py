"""Questions that a reaction answers: which messages ask, and what a reaction says."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from tailrace.delivery.planning.presenter import REACTIONS
from tailrace.delivery.port import Button
from tailrace.integrations.matrix.event_fields import EVENT_ID, newest_content, relation_of, thread_of
from tailrace.messages import JsonObject

ASKS: Final = "tailrace.approval"  # in the content of a question: another process may hear the reaction
MAX_QUESTIONS = 1000
_WITHOUT_LOOKS = dict.fromkeys([0xFE0F, *range(0x1F3FB, 0x1F400)])  # colour or not, and tones of skin


class Reaction(NamedTuple):
    event_id: str  # that it is about
    decision: str


def reaction_in(content: JsonObject) -> Reaction | None:
    """None for one that answers nothing."""
    relation = relation_of(content)
    event_id, decision = relation.get("event_id"), REACTIONS.get(str(relation.get("key")).translate(_WITHOUT_LOOKS))
    if relation.get("rel_type") != "m.annotation" or decision is None or not isinstance(event_id, str):
        return None
    return Reaction(event_id, decision) if EVENT_ID.fullmatch(event_id) else None


def asking(buttons: Sequence[Button]) -> JsonObject:
    """What the content of a question has beside its text."""
    return {ASKS: buttons[0].value.rpartition(":")[0]} if buttons else {}


class Question(NamedTuple):
    """`approval_id` is empty once it was answered."""

    approval_id: str
    thread: str


class Questions:
    """The messages of ours that ask, by event."""

    def __init__(self) -> None:
        self._asked: OrderedDict[str, Question] = OrderedDict()

    def note_shown(self, event_id: str, thread: str, buttons: Sequence[Button]) -> None:
        """A message of ours was sent or edited."""
        if buttons or event_id in self._asked:
            self._note(event_id, Question(str(asking(buttons).get(ASKS, "")), thread))

    def note_found(self, event_id: str, event: JsonObject) -> None:
        """A message that an earlier process has sent."""
        content = event.get("content")
        if isinstance(content, dict) and ASKS in content:
            open_now = str(newest_content(event).get(ASKS, ""))
            self._note(event_id, Question(open_now, thread_of(relation_of(content))))

    def _note(self, event_id: str, question: Question) -> None:
        self._asked[event_id] = question
        while len(self._asked) > MAX_QUESTIONS:
            self._asked.popitem(last=False)

    def answered_by(self, reaction: Reaction) -> Question | None:
        """The question that is still open; None where the message is none."""
        question = self._asked.get(reaction.event_id)
        return question if question is not None and question.approval_id else None
