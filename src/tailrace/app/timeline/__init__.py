"""A run as a timeline: what happened in it, when and for how long, made from its log."""

from __future__ import annotations

from tailrace.app.timeline.fold import timeline_of
from tailrace.app.timeline.items import AnyItem, Timeline

__all__ = ["AnyItem", "Timeline", "timeline_of"]
