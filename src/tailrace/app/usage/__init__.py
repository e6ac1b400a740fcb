"""What was used: tokens, calls and money by day, key and model, counted in the store that all processes share."""

from __future__ import annotations
