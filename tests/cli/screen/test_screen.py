"""The screen's own decisions, without a terminal."""

from __future__ import annotations

import pytest

from tailrace.cli.screen.screen import pause_after


@pytest.mark.parametrize(
    ("draw_s", "pause_s"),
    [
        (0.001, 0.05),  # twenty frames a second
        (0.02, 0.18),  # a tenth of the time
        (6.0, 0.5),  # the terminal was not read for so long: the user waits no longer than that
    ],
)
def test_a_slow_draw_is_followed_by_a_pause_that_nobody_notices(draw_s: float, pause_s: float) -> None:
    assert pause_after(draw_s) == pytest.approx(pause_s)
