"""A sequence with two steps side by side and one after them, each a model call."""

from __future__ import annotations

from typing import Any

SEQUENCE: dict[str, Any] = {
    "name": "both",
    "blocks": [
        {
            "type": "parallel",
            "id": "both",
            "branches": [
                [{"type": "step", "id": name, "handler": "llm_call", "params": {"provider": "fake", **question}}]
                for name, question in (
                    ("a", {"model": "any", "messages": [{"role": "user", "content": "Count."}]}),
                    ("b", {"model": "any", "messages": [{"role": "user", "content": "Count again."}]}),
                )
            ],
        },
        {
            "type": "step",
            "id": "c",
            "handler": "llm_call",
            "params": {"provider": "fake", "model": "any", "messages": [{"role": "user", "content": "And again."}]},
        },
    ],
}
