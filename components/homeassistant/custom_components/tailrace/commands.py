"""Whether an utterance is a command: typed as in the chats (`/new`, `/stop`), or said in the language of the speaker.
Pure.

A word that is said may be meant for the house as well: "stop" for the blinds that are moving. So what was said is a
command only as a whole, and `Command.said` lets the caller pass it on to the model where there is nothing to stop.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from .yes_no import FALLBACK, languages_of, phrases, without_fillers, words_of

_STOP = {
    "cs": "stop|zastav|přestaň",
    "da": "stop|hold op",
    "de": "stopp|stop|halt|hör auf|aufhören",
    "en": "stop|stop it|stop that|stop talking",
    "es": "para|detente|basta|alto",
    "fi": "seis|lopeta",
    "fr": "stop|arrête|arrêtez|arrête toi",
    "it": "stop|ferma|fermati|basta",
    "nb": "stopp|slutt|hold opp",
    "nl": "stop|hou op",
    "pl": "stop|przestań",
    "pt": "pare|para|chega",
    "sv": "stopp|sluta",
}
_NEW = {
    "cs": "nová konverzace|nový rozhovor|začni nový rozhovor",
    "da": "ny samtale|start en ny samtale",
    "de": "neue unterhaltung|neues gespräch|beginne eine neue unterhaltung|beginne ein neues gespräch",
    "en": "new conversation|start a new conversation|begin a new conversation",
    "es": "nueva conversación|empieza una nueva conversación",
    "fi": "uusi keskustelu|aloita uusi keskustelu",
    "fr": "nouvelle conversation|commence une nouvelle conversation",
    "it": "nuova conversazione|inizia una nuova conversazione",
    "nb": "ny samtale|start en ny samtale",
    "nl": "nieuw gesprek|begin een nieuw gesprek",
    "pl": "nowa rozmowa|zacznij nową rozmowę",
    "pt": "nova conversa|começa uma nova conversa|comece uma nova conversa",
    "sv": "ny konversation|nytt samtal|starta ett nytt samtal",
}
_TYPED = re.compile(r"/([A-Za-z][A-Za-z0-9_]*)(?:\s+(.*))?", re.DOTALL)


@dataclass(frozen=True)
class Command:
    """`other` is any other word behind a slash. Assist has no place for the other commands of the chats: approvals are
    answered with a yes or a no, and the rest are options. `question`: what a new conversation begins with."""

    name: Literal["new", "stop", "other"]
    said: bool = False
    question: str = ""


def command_in(text: str, language: str) -> Command | None:
    """The command; None for what the model answers. Words count in the speaker's language, and in English."""
    if typed := _TYPED.fullmatch(text.strip()):
        name, argument = typed[1].lower(), (typed[2] or "").strip()
        if name == "new":
            return Command("new", question=argument)
        if name == "stop":
            return Command("stop")
        return Command("other")
    for spoken in dict.fromkeys((languages_of(language)[-1], FALLBACK)):
        if spoken in _STOP:
            words = " ".join(without_fillers(words_of(text), spoken))
            if words in phrases(_STOP, spoken):
                return Command("stop", said=True)
            if words in phrases(_NEW, spoken):
                return Command("new", said=True)
    return None
