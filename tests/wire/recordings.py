"""Recorded provider streams, read from `TAILRACE_WIRE_DIR` where they are at hand."""

from __future__ import annotations

import base64
import itertools
import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

WIRE_DIR = Path(os.environ.get("TAILRACE_WIRE_DIR", "")) if os.environ.get("TAILRACE_WIRE_DIR") else None
needs_recordings = pytest.mark.skipif(
    WIRE_DIR is None, reason="TAILRACE_WIRE_DIR is not set: the recorded provider streams are not at hand"
)


@dataclass(frozen=True)
class Recording:
    id: str
    api: str
    raw: bytes
    meta: dict[str, Any]
    expected: dict[str, Any]


def load(api: str) -> list[Recording]:
    """All recordings of a dialect with the official SDK's reading beside each; empty where they are not at hand."""
    return list(_load(api)) if WIRE_DIR is not None else []


def _load(api: str) -> Iterator[Recording]:
    assert WIRE_DIR is not None
    for path in sorted(WIRE_DIR.glob("*.expected.json")):
        meta = json.loads(path.with_name(path.name.replace(".expected.json", ".json")).read_text(encoding="utf-8"))
        if meta["api"] == api:
            expected = json.loads(path.read_text(encoding="utf-8"))
            yield Recording(meta["id"], api, _bytes_of(meta), meta, expected)


def _bytes_of(meta: dict[str, Any]) -> bytes:
    if "sse" in meta:
        return str(meta["sse"]).encode()
    if "sse_base64" in meta:
        return base64.b64decode(meta["sse_base64"])
    # framing "none": one JSON payload per entry, framed here as the provider would
    return b"".join(b"data: %b\n\n" % (c if isinstance(c, str) else json.dumps(c)).encode() for c in meta["chunks"])


def split_at(data: bytes, cuts: list[int]) -> list[bytes]:
    """The same bytes in pieces, cut at these offsets."""
    edges = [0, *sorted(c % (len(data) + 1) for c in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def random_pieces(data: bytes, rng: random.Random) -> list[bytes]:
    """One of the many ways in which a network could have delivered these bytes."""
    how_many = rng.choice([1, 3, 10, 50, min(len(data), 400)])
    return split_at(data, [rng.randrange(len(data) + 1) for _ in range(how_many)])
