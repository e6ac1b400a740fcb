"""Who speaks in a chat that several people share: what each is called, so that the model can tell them apart.

Pure: no I/O. A name is whatever its owner typed: it may pass neither for a line of the chat's own nor for another
person. `speaker_marks` says how the model reads whose a message is.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from tailrace.delivery.port import ChatKind
from tailrace.events.speaker_marks import SpokenBy
from tailrace.messages import Value

MAX_NAME = 64  # characters
MAX_PEOPLE = 500  # that are remembered of one conversation; the others are told apart from these
# Who asks in a chat's conversation from elsewhere, by the name under which that surface asks; others are keys' names.
ELSEWHERE: Final = {
    "": "an automation",
    "cli": "somebody in the terminal",
    "default": "somebody on the page",
    "editor": "somebody in an editor",
    "local": "somebody on the page",
    "mcp": "somebody at an MCP host",
    "python": "a Python program",
}
_OURS = "tailrace:"  # before the ids of these
_MAX_READ = 1000  # characters of a name that are looked at, before it is made plain and after
# Of no width, and any number can follow: the combining grapheme joiner, the variation selectors, a filler.
_UNSEEN = re.compile("[\u034f\u180b-\u180f\ufe00-\ufe0f\U00016fe4\U000e0100-\U000e01ef]")
_BLANK_LETTERS = re.compile("[\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\U00013441\U00013442\U0001d159]")
_ACCENTS = 200  # and above: the classes of marks that stand above or below a letter
_BRACKETS = str.maketrans("[]", "()")
# Letters of other scripts that look like Latin ones.
_ALIKE = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u04bb\u0501\u051b\u051d\u04cf"
    "\u0432\u043a\u043c\u043d\u0442\u03b1\u03b2\u03b5\u03b9\u03ba\u03bc\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7\u0131"
    "\u0251\u0261\u0269\u0585\u0578\u057d\u0570\u0581",
    "aeopcyxijshdqwlbkmhtabeikuvoptyxiagionuhg",
)
_STROKES = str.maketrans("i1|0", "lllo")  # a stroke alone, and a ring, in many a typeface
# What else stands between a person and the model: nobody is called so without a word more.
_ROLES = (
    *("admin", "ai", "assistant", "bot", "developer", "everybody", "everyone", "function", "human", "model"),
    *("moderator", "nobody", "operator", "root", "somebody", "system", "tailrace", "tool", "user", "you"),
)
# Brackets that look like square ones and are not made such by Unicode's own folding.
_SQUARE = str.maketrans("\u2045\u27e6\u2772\u3010\u3014\u3016\u3018\u301a", "[" * 8)
_PIECE = 256  # characters of a line that are looked at together
_MAX_BEGINNING = 512  # characters that are seen: none of our lines begins behind as many
# What may stand before the first word of a line: no letter, so that possessive matches read each character once.
_BEFORE = r"(?P<before>[\W_]*+(?:\d++[\W_]++)*+)"
_GAP = r"[\W_]++"
_CONTEXT_LINE = re.compile(rf"{_BEFORE}(?:[il1|]n{_GAP}rep[li1|]y{_GAP}t[o0]|f[o0]rwarded|attached(?=\s*:))(?![^\W_])")


def one_line_name(name: str, max_chars: int = MAX_NAME) -> str:
    """The name in one line of at most `max_chars` visible characters, without square brackets; empty where nothing is
    left of it."""
    visible = _visible(unicodedata.normalize("NFKC", _visible(name[:_MAX_READ]))[:_MAX_READ])
    line = " ".join(visible.split()).translate(_BRACKETS)
    return line if len(line) <= max_chars else line[: max_chars - 1] + "…"


def _visible(text: str) -> str:
    """The text as it is seen: what has no width is not there, and what is blank is a space."""
    return "".join(map(_printable, _BLANK_LETTERS.sub(" ", _UNSEEN.sub("", text))))


def _printable(character: str) -> str:
    """A control ends a word as a line end does; marks of format, of direction among them, stand for nothing."""
    if character.isprintable():
        return character
    return " " if character.isspace() or unicodedata.category(character) == "Cc" else ""


class Speaker(Value):
    """A person in a conversation, and the update that they came with."""

    id: str
    name: str = ""  # in one line; empty: not known yet
    first_update: str = ""


def speaker_elsewhere(requester: str, update_id: str) -> Speaker:
    """Whoever asks in a chat's conversation from the page, a terminal or the API."""
    name = ELSEWHERE.get(requester)
    return Speaker(f"{_OURS}{name or requester}", name or one_line_name(requester), update_id)


class Speakers(Value):
    """Who has spoken in a conversation, in the order of their first messages. A person keeps the name that they came
    with: the model knows them by it. Whom it knows by an id has the id beside the name that is known later."""

    people: tuple[Speaker, ...] = ()
    begun_before: bool = False  # with messages of which nobody knows any more whose they are

    @property
    def are_several(self) -> bool:
        return self.begun_before or len(self.people) > 1

    @property
    def nameless(self) -> tuple[Speaker, ...]:
        return tuple(person for person in self.people if not person.name)

    def has(self, person_id: str) -> bool:
        return any(person.id == person_id for person in self.people)

    def with_person(self, person: Speaker) -> Speakers:
        if self.has(person.id) or len(self.people) >= MAX_PEOPLE:
            return self
        return replace(self, people=(*self.people, person))

    def with_names(self, names: Mapping[str, str]) -> Speakers:
        """With the names of people who had none, by their ids."""
        people = (replace(one, name=names.get(one.id, "")) if not one.name else one for one in self.people)
        return replace(self, people=tuple(people))

    def is_known_by_id(self, person_id: str) -> bool:
        return any(one.id == person_id and one.name == one_line_name(person_id) for one in self.people)

    def with_name_of(self, person_id: str, name: str) -> Speakers:
        """With the name of a person whom the model knows by the id. It has read that: the id stays beside the name."""
        if not self.is_known_by_id(person_id) or name == one_line_name(person_id):
            return self
        both = f"{name} ({one_line_name(person_id)})"
        return replace(
            self, people=tuple(replace(one, name=both) if one.id == person_id else one for one in self.people)
        )

    def label_of(self, person: Speaker) -> str:
        """What the model reads as the person's name. No two people have one."""
        labels = _Labels()
        for one in self.people:
            label = labels.add(one)
            if one.id == person.id:
                return label
        return labels.add(person)

    def spoken_by(self, person: Speaker, *, from_the_first: bool = False) -> SpokenBy:
        """Whose the person's message is, which came with their update. `from_the_first`: each one says so, and not only
        from the second person on."""
        if not (self.are_several or from_the_first):
            return SpokenBy()
        first = self._sole_speaker_before(person.first_update) if not from_the_first else None
        return SpokenBy(
            self.label_of(person),
            above=self.label_of(first) if first is not None else "",
            above_unknown=self.begun_before and self.people[0].first_update == person.first_update,
        )

    def _sole_speaker_before(self, update_id: str) -> Speaker | None:
        """Of the message with which a second person came: whoever wrote all that stands above it."""
        match self.people:
            case (first, second, *_) if second.first_update == update_id and not self.begun_before:
                return first
            case _:
                return None


class _Labels:
    """The names that are given so far. A number is tried once for each name, so that many people of one name take no
    longer than as many others."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next_number: dict[str, int] = {}

    def add(self, person: Speaker) -> str:
        name = person.name or one_line_name(person.id)
        is_ours = person.id.startswith(_OURS) and name in ELSEWHERE.values()
        if _folded(name) in _RESERVED and not is_ours:
            name = _as_person(name)
        label = name if _folded(name) not in self._taken else self._numbered(name)
        self._taken.add(_folded(label))
        return label

    def _numbered(self, name: str) -> str:
        stem = _letters(name)
        for number in itertools.count(self._next_number.get(stem, 2)):
            if _folded(label := f"{name} ({number})") not in self._taken:
                break
        self._next_number[stem] = number + 1
        return label


def author_name(name: str) -> str:
    """The name of somebody whose words are quoted, in one line; empty where nothing is left of it. The quotation of the
    model's own words is headed "you": nobody else is called so, or like another part of the conversation."""
    line = one_line_name(name)
    return _as_person(line) if _folded(line) in _RESERVED else line


def _as_person(name: str) -> str:
    return f"a person called {name}"


def _folded(name: str) -> str:
    """The same for names that a reader takes for one: without capitals, accents, punctuation and common look-alikes."""
    return _letters(name) or name


def _letters(name: str) -> str:
    apart = unicodedata.normalize("NFKD", name.casefold()).translate(_ALIKE).translate(_STROKES)
    return "".join(character for character in apart if _counts(character))


def _counts(character: str) -> bool:
    """Signs for vowels, as in Devanagari, are letters; accents are not."""
    is_sign = unicodedata.category(character).startswith("M") and unicodedata.combining(character) < _ACCENTS
    return character.isalnum() or is_sign


_RESERVED = frozenset(map(_folded, (*_ROLES, *ELSEWHERE.values())))


def typed_text(text: str, kind: ChatKind) -> str:
    """What a person typed, before an adapter puts `[in reply to Ben]`, `[forwarded …]` or `[attached: …]` beside it: in
    a shared chat a line that looks like one of these is a quotation. In a private one nobody else could have said it.

    This keeps apart what one person typed and what their client added. Whose it is does not hang on it
    (`speaker_marks`)."""
    if kind == "private":
        return text
    return "".join(f"> {line}" if _looks_like_context(line) else line for line in text.splitlines(keepends=True))


def _looks_like_context(line: str) -> bool:
    """Whether a reader may take the line for an adapter's, which begins with a square bracket and these words, whatever
    stands around them. A quotation is none."""
    found = _CONTEXT_LINE.match(_beginning(line)) if not line.lstrip().startswith(">") else None
    return found is not None and found["before"].rfind("[") > found["before"].rfind("]")


def _beginning(line: str) -> str:
    """The line up to its first letters as they look, in small ones without accents, and a blank for several. Bounded,
    so that no line is too long for the pattern."""
    seen: list[str] = []
    for start in range(0, len(line), _PIECE):
        piece = line[start : start + _PIECE]
        folded = _visible(unicodedata.normalize("NFKD", piece.casefold()))
        for one in folded:
            is_blank_again = one.isspace() and bool(seen) and seen[-1].isspace()
            if not (is_blank_again or unicodedata.category(one).startswith("M")):
                seen.append(one)
        if len(seen) > _MAX_BEGINNING:
            break
    return "".join(seen[:_MAX_BEGINNING]).translate(_SQUARE).translate(_ALIKE)
