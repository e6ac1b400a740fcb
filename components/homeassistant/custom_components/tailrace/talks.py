"""Which session of the server an utterance belongs to, and which answers nobody has heard yet. Pure.

A device has one session, so does a conversation without a device. A session that nobody used for a while is left for a
new one. `as_dict` and `from_dict` are what is kept over a restart of Home Assistant.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field
from typing import Any

MAX_TALKS = 100  # the least recently used are forgotten
_MAX_KEY_CHARS = 100  # a conversation's id may be any text, a session's name may not


@dataclass
class OpenQuestion:
    """An approval that a run waits for. `seq`: where to read the log on after the answer."""

    run_id: str
    approval_id: str
    question: str
    seq: int


@dataclass
class Talk:
    """`asking`: a question was sent and it is not yet known which run it became."""

    session: str
    used_at: float
    asking: str = ""
    open_question: OpenQuestion | None = None


@dataclass
class Unheard:
    """A run whose end nobody has heard. `after`: what was told of it, as a place in its log."""

    question: str
    language: str
    key: str = ""
    after: int = 0


@dataclass
class Talks:
    by_key: dict[str, Talk] = field(default_factory=dict)
    unheard: dict[str, Unheard] = field(default_factory=dict)  # by run

    def talk(self, key: str, *, prefix: str, now: float, idle_s: float) -> Talk:
        """The talk of this device or conversation; a new one where the last was left alone for `idle_s`; 0: never."""
        talk = self.by_key.pop(key, None)
        if talk is None or (idle_s and now - talk.used_at > idle_s):
            talk = Talk(f"{prefix}-{_short(key)}-{int(now)}", now)
        talk.used_at = now
        self.by_key[key] = talk  # the newest is the last
        while len(self.by_key) > MAX_TALKS:
            del self.by_key[next(iter(self.by_key))]
        return talk

    def begin_anew(self, key: str, *, prefix: str, now: float) -> Talk:
        """A talk that knows nothing of the one before."""
        self.by_key.pop(key, None)
        self.by_key[key] = talk = Talk(f"{prefix}-{_short(key)}-{int(1000 * now)}", now)
        return talk

    def under_way(self, key: str) -> list[str]:
        """The runs of this device or conversation whose end nobody has heard."""
        return [run_id for run_id, unheard in self.unheard.items() if unheard.key == key]

    def answered(self, run_id: str) -> None:
        """Nothing of the run is left to be told or asked."""
        self.unheard.pop(run_id, None)
        for talk in self.by_key.values():
            if talk.open_question is not None and talk.open_question.run_id == run_id:
                talk.open_question = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, kept: dict[str, Any]) -> Talks:
        talks = {}
        for key, talk in kept.get("by_key", {}).items():
            asked = talk.get("open_question")
            talks[key] = Talk(**{**talk, "open_question": OpenQuestion(**asked) if asked else None})
        return cls(talks, {run_id: Unheard(**run) for run_id, run in kept.get("unheard", {}).items()})


def talk_key(device_id: str | None, conversation_id: str) -> str:
    """A satellite keeps its session when its conversation gets a new id; without a device the conversation decides."""
    return f"device:{device_id}" if device_id else f"conversation:{conversation_id}"


def _short(key: str) -> str:
    name = key.partition(":")[2]
    if len(name) <= _MAX_KEY_CHARS and name.isascii() and name.isprintable():
        return name
    return hashlib.sha256(name.encode()).hexdigest()[:32]
