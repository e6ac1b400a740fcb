"""The test side of the world, shipped so that users can test against it too: a provider that misbehaves on request,
and an event loop whose clock is driven. Nothing in the product imports it."""

from __future__ import annotations
