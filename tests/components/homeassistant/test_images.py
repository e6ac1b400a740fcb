"""A notification loads nothing from elsewhere, whether the integration makes it or the gateway.

Each has the filter for itself: the integration is installed into Home Assistant without the package, and the gateway
serves a Home Assistant without the integration. Both are held to one table here.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from custom_components.tailrace.images import without_images
from hypothesis import given
from hypothesis import strategies as st

from tailrace.delivery.port import Place, Send
from tailrace.integrations.homeassistant.outbound import notification_text

LOADS = [
    "audio",
    "embed",
    "iframe",
    "image",
    "img",
    "input",
    "link",
    "object",
    "picture",
    "source",
    "style",
    "svg",
    "track",
    "video",
]
# What the filters tell apart.
PIECES = [*LOADS, "IMG", "b", *"![](:<>/\\`\n \u2060"]


def shown_by_gateway(text: str) -> str:
    return notification_text(Place("homeassistant", "kitchen"), Send("k", text))


@pytest.mark.parametrize("shown_of", [without_images, shown_by_gateway])
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("See ![a map](https://evil.example/?k=1).", "See !\u2060[a map](https://evil.example/?k=1)."),
        ("> map?\n\n![a map](https://evil.example/?k=1)", "> map?\n\n!\u2060[a map](https://evil.example/?k=1)"),
        (r"See \![a map](https://evil.example/).", "See \\!\u2060[a map](https://evil.example/)."),
        ("![one][ref]\n\n[ref]: https://evil.example", "!\u2060[one][ref]\n\n[ref]: https://evil.example"),
        ("<div><IMG src=x></div>", "<div><\u2060IMG src=x></div>"),
        *[(f"<{tag} src=x></{tag}>", f"<\u2060{tag} src=x></{tag}>") for tag in LOADS],
        ("<images> <b>", "<images> <b>"),
        ("<b>bold</b> 1 < 2, a [link](https://example.org)!", "<b>bold</b> 1 < 2, a [link](https://example.org)!"),
        ("```rust\nvec![1, 2]\n```", "```rust\nvec![1, 2]\n```"),
    ],
)
def test_images_are_links_and_tags_that_load_are_text(shown_of: Callable[[str], str], text: str, shown: str) -> None:
    """Home Assistant's front end shows images of any host."""
    assert shown_of(text) == shown


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_the_two_filters_are_one(text: str) -> None:
    assert shown_by_gateway(text) == without_images(text)
