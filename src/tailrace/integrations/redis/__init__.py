"""The bus on Redis Streams: committed entries reach viewers on other machines without a read of storage."""

from __future__ import annotations

from tailrace.plugins import BusKind, Integration

INTEGRATION = Integration(
    name="redis",
    title="Redis",
    extra="redis",
    library="redis",
    bus=BusKind(schemes=("redis", "rediss"), example="redis://…", make=".bus:RedisBus", ping=".bus:ping"),
)
