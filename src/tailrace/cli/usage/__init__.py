"""`tailrace usage`."""

from __future__ import annotations
