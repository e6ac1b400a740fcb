"""A provider that refuses what the vendors' APIs refuse, in their words: our check of what is sent to them."""

from __future__ import annotations

from proof.strict_provider.provider import StrictProvider

__all__ = ["StrictProvider"]
