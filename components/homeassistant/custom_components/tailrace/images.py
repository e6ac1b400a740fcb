"""Notifications load nothing from elsewhere. Pure.

The front end of Home Assistant shows images of any host, so that a text that a model was tricked into would reach a
stranger's server as soon as somebody looks at it. The word joiner, which is not seen, makes a link of a Markdown image
and a text of a tag, also inside of HTML, where no backslash does.

The gateway has the same filter (`tailrace/integrations/homeassistant/outbound.py`), for a Home Assistant without this
integration; neither is installed with the other. `test_images.py` holds both to one table.
"""

from __future__ import annotations

import re

_LOADED = re.compile(
    r"!(?=\[)|<(?=(?:audio|embed|iframe|image|img|input|link|object|picture|source|style|svg|track|video)\b)",
    re.IGNORECASE,
)
_WORD_JOINER = "\u2060"
_LINKED = re.compile(r"\]\s*[(\[:]")  # no image is without one of these; `vec![1, 2]` is none


def without_images(text: str) -> str:
    """The text of a model for a notification: its images are links."""
    if "<" not in text and not _LINKED.search(text):
        return text
    return _LOADED.sub(rf"\g<0>{_WORD_JOINER}", text)
