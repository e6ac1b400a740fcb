"""Ctrl-C, press by press."""

from __future__ import annotations

from tailrace.cli.chat.interrupt_key import InterruptKey


def test_twice_in_a_row_leaves_whatever_runs() -> None:
    for command, turn, first in ((True, True, "end command"), (False, True, "stop turn"), (False, False, "warn")):
        key = InterruptKey()
        assert key.press(command_runs=command, turn_runs=turn, typed=False) == first
        assert key.leaves_next
        assert key.press(command_runs=command, turn_runs=turn, typed=False) == "leave"


def test_what_ended_in_between_makes_the_next_press_the_first() -> None:
    key = InterruptKey()
    assert key.press(command_runs=False, turn_runs=True, typed=False) == "stop turn"
    key.forget()
    assert key.press(command_runs=False, turn_runs=False, typed=False) == "warn"


def test_what_is_typed_is_cleared_and_never_lost_by_leaving() -> None:
    key = InterruptKey()
    assert key.press(command_runs=False, turn_runs=False, typed=False) == "warn"
    assert key.press(command_runs=False, turn_runs=False, typed=True) == "clear input"
    assert not key.leaves_next
    assert key.press(command_runs=False, turn_runs=False, typed=False) == "warn"
