"""A notification loads nothing from elsewhere."""

from __future__ import annotations

import pytest
from custom_components.tailrace.images import without_images


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("> map?\n\n![a map](https://evil.example/?k=1)", "> map?\n\n!\u2060[a map](https://evil.example/?k=1)"),
        ("![one][ref]\n\n[ref]: https://evil.example", "!\u2060[one][ref]\n\n[ref]: https://evil.example"),
        ("<div><IMG src=x></div>", "<div><\u2060IMG src=x></div>"),
        ("1 < 2, a [link](https://example.org)!", "1 < 2, a [link](https://example.org)!"),
        ("vec![1, 2]", "vec![1, 2]"),
    ],
)
def test_images_are_links_in_a_notification(text: str, shown: str) -> None:
    assert without_images(text) == shown
