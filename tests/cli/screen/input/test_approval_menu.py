"""The menu of an approval, key by key: what answers it, what is a message, and what is swallowed."""

from __future__ import annotations

from cli.screen.drawn_text import Clock, drawn
from tailrace.cli.screen.input.approval_menu import ARMED_AFTER_S, ApprovalMenu
from tailrace.events import ApprovalAsked


def asked_menu() -> tuple[ApprovalMenu, Clock]:
    clock = Clock()
    menu = ApprovalMenu(clock, 60, wall_clock=lambda: 5000.0)
    menu.open(ApprovalAsked("a", "terminal", "rm -rf x", "d", expires_at=5042.0))
    return menu, clock


def stand(menu: ApprovalMenu, clock: Clock) -> None:
    """A frame with the menu, and one when it has stood."""
    draw(menu)
    clock.now += ARMED_AFTER_S
    draw(menu)


def draw(menu: ApprovalMenu) -> None:
    menu.rows()
    menu.was_drawn()


def test_no_key_counts_before_the_screen_says_so() -> None:
    menu, clock = asked_menu()
    clock.now += 10 * ARMED_AFTER_S  # a busy machine draws late
    assert menu.press("s") == "draft"
    clock.now += 10 * ARMED_AFTER_S
    draw(menu)
    assert menu.press("s") == "draft"  # it appeared just now
    clock.now += 10 * ARMED_AFTER_S
    assert menu.press("s") == "draft"  # what is on the screen is still dim
    stand(menu, clock)
    assert menu.press("s") == "answer"


def test_keys_count_once_the_menu_has_stood_and_no_key_was_pressed_meanwhile() -> None:
    menu, clock = asked_menu()
    draw(menu)
    assert menu.press("o") == "draft"  # meant for the message that was being typed
    clock.now += ARMED_AFTER_S / 2
    draw(menu)
    assert menu.press("s") == "draft"
    stand(menu, clock)
    assert (menu.press("s"), menu.decision) == ("answer", "session")


def test_a_word_that_begins_with_no_choice_answers_nothing() -> None:
    menu, clock = asked_menu()
    stand(menu, clock)
    assert [menu.press(key) for key in "@notes"] == ["draft"] * 6  # no key of a message is lost
    stand(menu, clock)
    assert menu.press("o") == "answer"


def test_the_rest_of_a_word_that_was_typed_out_is_swallowed() -> None:
    menu, clock = asked_menu()
    stand(menu, clock)
    assert [menu.press(key) for key in "once"] == ["answer", "nothing", "nothing", "nothing"]
    menu.close()
    assert menu.swallows("\r")
    assert not menu.swallows("h")


def test_the_menu_counts_down_and_says_what_each_key_means() -> None:
    menu, clock = asked_menu()
    clock.now += 12
    lines = drawn(menu.rows())
    assert lines[1] == "   o  once     this time only"
    assert lines[3] == "   a  always   exactly this, here, from now on"
    assert lines[-1] == "  30 s left, then it is denied"
    stand(menu, clock)
    assert menu.press("w") == "why"
    assert drawn(menu.rows())[1].startswith("  Why not?")
