"""One session per device or conversation, kept over a restart, left after a pause."""

from __future__ import annotations

import json
from functools import partial

from custom_components.tailrace.talks import MAX_TALKS, OpenQuestion, Talks, Unheard, talk_key


def test_a_device_keeps_its_session_until_it_is_left_alone() -> None:
    talks = Talks()
    talk = partial(talks.talk, prefix="ha", idle_s=60.0)
    first = talk(talk_key("kitchen", "c1"), now=1000.0).session
    assert first == "ha-kitchen-1000"
    assert talk(talk_key("kitchen", "c2"), now=1050.0).session == first
    assert talk(talk_key("kitchen", "c2"), now=1110.0).session == first
    assert talk(talk_key("kitchen", "c2"), now=1171.0).session == "ha-kitchen-1171"
    assert talk(talk_key(None, "c1"), now=1171.0).session == "ha-c1-1171"
    assert talks.talk("device:kitchen", prefix="ha", now=9e9, idle_s=0).session == "ha-kitchen-1171"


def test_a_conversations_id_may_be_any_text() -> None:
    talks = Talks()
    names = [talks.talk(talk_key(None, name), prefix="ha", now=1.0, idle_s=0).session for name in ("ü", "x" * 300, "ü")]
    assert names[0] == names[2] != names[1]
    assert all(len(name) < 60 for name in names)


def test_what_is_kept_comes_back() -> None:
    talks = Talks()
    talk = talks.talk("device:a", prefix="ha", now=1.0, idle_s=0)
    talk.asking, talk.open_question = "Why?", OpenQuestion("r1", "a1", "May I?", 7)
    talks.unheard["r1"] = Unheard("Why?", "de", "device:a", 7)
    again = Talks.from_dict(json.loads(json.dumps(talks.as_dict())))
    assert again == talks
    again.answered("r1")
    assert not again.unheard
    assert again.by_key["device:a"].open_question is None


def test_only_so_many_are_kept() -> None:
    talks = Talks()
    for number in range(MAX_TALKS + 5):
        talks.talk(f"device:{number}", prefix="ha", now=float(number), idle_s=0)
    assert next(iter(talks.by_key)) == "device:5"
    assert len(talks.by_key) == MAX_TALKS


def test_a_talk_begins_anew_within_the_same_second() -> None:
    talks = Talks()
    talks.unheard = {"r1": Unheard("Why?", "en", "device:a"), "r2": Unheard("How?", "en", "device:b")}
    first = talks.talk("device:a", prefix="ha", now=1.5, idle_s=0)
    assert talks.under_way("device:a") == ["r1"]
    second = talks.begin_anew("device:a", prefix="ha", now=1.5)
    assert second.session != first.session
    assert talks.talk("device:a", prefix="ha", now=1.6, idle_s=0) is second
