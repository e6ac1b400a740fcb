"""What a reply brings along of the text that it replies to."""

from __future__ import annotations

import pytest

from tailrace.delivery.planning.presenter import shortened


@pytest.mark.parametrize("extra", [0, 1, 5000])
def test_a_long_text_loses_its_middle_and_says_how_much(extra: int) -> None:
    text = "a" * 2000 + "b" * extra + "c" * 2000
    mark = f"\n[… {extra} characters are left out …]\n" if extra else ""
    assert shortened(text) == f"{'a' * 2000}{mark}{'c' * 2000}"
