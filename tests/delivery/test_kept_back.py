"""What an answer that was kept back in parts still lacks: the pure side."""

from __future__ import annotations

from itertools import product

import pytest
from msgspec.structs import replace

from delivery.planning.played_plans import Stage, answer, numbered
from tailrace.delivery.kept_back import Kept, KeptDeliveries, lost_since, messages_seen
from tailrace.delivery.planning.planner import Showing
from tailrace.delivery.port import AnyAction, Capabilities, Refused, Send, TooLong
from tailrace.events import Delivered
from tailrace.testing.platforms.base import Fault

KEEPING = Capabilities(keeps_back=True, limit=400)
WORDS = [f"word{number}" for number in range(210)]
TEXT = " ".join(WORDS)
EVENTS = numbered(answer(TEXT))


def sent(stage: Stage) -> list[str]:
    return [action.text for action in stage.actions if isinstance(action, Send)]


def delivered(
    capabilities: Capabilities, seen: tuple[Delivered, ...] = (), refused: frozenset[int] = frozenset()
) -> Stage:
    """The answer in a chat that has `seen` of it and refuses some of the messages that come then."""

    def fault(action: AnyAction) -> Fault:
        if isinstance(action, Send) and len(sent(stage)) - 1 in refused:
            return Refused("later", until_heard=True)
        return None

    stage = Stage(capabilities, Showing(), fault=fault)
    stage.planner.state.inherit(seen)
    stage.feed(EVENTS)
    stage.finish()
    return stage


def words(texts: list[str]) -> list[str]:
    return " ".join(texts).split()


def test_what_was_refused_is_all_that_comes_again() -> None:
    parts = sent(delivered(KEEPING))
    assert len(parts) == 5
    for arrived in product((True, False), repeat=5):
        refused = frozenset(index for index, came in enumerate(arrived) if not came)
        first = delivered(KEEPING, refused=refused)
        again = delivered(KEEPING, messages_seen((), first.facts, ()))
        assert sent(again) == [part for part, came in zip(parts, arrived, strict=True) if not came]


def test_what_was_lost_afterwards_is_all_that_comes_again() -> None:
    first = delivered(KEEPING)
    parts = sent(first)
    for came in product((True, False), repeat=5):
        lost = [f"t0.{index}" for index in range(5) if not came[index]]
        seen = messages_seen((), first.facts, lost)
        assert sent(delivered(KEEPING, seen)) == [part for part, here in zip(parts, came, strict=True) if not here]


@pytest.mark.parametrize("with_ends", [True, False])
@pytest.mark.parametrize("limit", [150, 250, 399, 401, 600, 5000])
def test_with_another_limit_nothing_is_missing(limit: int, with_ends: bool) -> None:
    first = delivered(KEEPING)
    parts = sent(first)
    facts = first.facts if with_ends else [replace(fact, end=None) for fact in first.facts]
    for came in product((True, False), repeat=5):
        seen = messages_seen((), facts, [f"t0.{index}" for index in range(5) if not came[index]])
        again = sent(delivered(replace(KEEPING, limit=limit), seen))
        here = [part for part, there in zip(parts, came, strict=True) if there]
        assert set(words(here)) | set(words(again)) == set(WORDS)
        if with_ends and (limit > 400 or all(came)):
            assert sorted(words([*here, *again])) == sorted(WORDS), "and nothing comes twice"
        prefix = came.index(False) if False in came else 5
        if with_ends:
            assert set(words(parts[:prefix])).isdisjoint(words(again)), "what came before is cut off"


@pytest.mark.parametrize("limit", [250, 400, 600])
def test_another_process_goes_on_with_what_is_missing(limit: int) -> None:
    first = delivered(KEEPING)
    seen = messages_seen((), first.facts, ["t0.0", "t0.2", "t0.3"])
    whole = sent(delivered(replace(KEEPING, limit=limit), seen))
    for after_s in range(len(whole)):
        killed, next_one = (Stage(replace(KEEPING, limit=limit), Showing()) for _ in range(2))
        for stage in (killed, next_one):
            stage.planner.state.inherit(seen)
            stage.planner.restore(killed.facts)
            stage.feed(EVENTS)
            if stage is killed:
                stage.run_until(stage.now + after_s)
        next_one.finish()
        assert 0 < len(sent(killed)) == after_s + 1
        assert [*sent(killed), *sent(next_one)] == whole


def test_a_part_that_is_too_long_now_pushes_no_other_one_out() -> None:
    first = delivered(KEEPING)
    stage = Stage(
        KEEPING, Showing(), fault=lambda action: TooLong() if len(getattr(action, "text", "")) > 300 else None
    )
    stage.planner.state.inherit(messages_seen((), first.facts, ["t0.1"]))
    stage.feed(EVENTS)
    stage.finish()
    shown = [text for text in sent(stage) if len(text) <= 300]
    assert set(words([sent(first)[0], *shown])) == set(WORDS)


def test_a_send_without_a_reply_stays_out_and_notes_are_no_part_of_the_answer() -> None:
    unknown = Delivered("t0.0", "unknown", final=True)
    facts = [
        unknown,
        Delivered("t0.1", "failed", until_heard=True),
        Delivered("p0.0", "confirmed", "m1"),
        Delivered("unshown.0", "confirmed", "m2"),
        Delivered("thread", "gone"),
    ]
    assert messages_seen((), facts, ()) == (unknown, Delivered("t0.1", "unsent"))
    assert messages_seen((), facts, ["t0.0"])[0] == replace(unknown, state="unsent")
    assert messages_seen((), facts, None) == ()


def test_what_the_next_delivery_has_sent_is_not_lost_with_the_first() -> None:
    seen = messages_seen((), [Delivered(f"t0.{index}", "confirmed") for index in range(3)], ["t0.0"])
    late = Kept("first", frozenset({"t0.0", "t0.1"}))
    assert lost_since(late, "second", seen) == Kept("second", frozenset({"t0.1"}))
    assert lost_since(Kept("first", None), "second", seen) == Kept("second", frozenset())
    assert lost_since(late, "second", ()) == Kept("second", frozenset()), "it has sent all of it"


def test_what_an_earlier_version_kept_is_kept_whole() -> None:
    assert KeptDeliveries(("old", "new"), {"new": ("t0.1",)}).kept == (
        Kept("old", None),
        Kept("new", frozenset({"t0.1"})),
    )
