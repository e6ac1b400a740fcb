"""A package of somebody else, installed as pip leaves it, with any source."""

from __future__ import annotations

from pathlib import Path

GOOD = "from tailrace.plugins import Integration\nfrom tailrace.config.sections import PlatformSettings\n"


def broken_package(site: Path, name: str, source: str) -> Path:
    """A distribution as pip leaves it: a module, and a `.dist-info` with its entry point."""
    info = site / f"tailrace_{name}-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tailrace-{name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[tailrace.integrations]\n{name} = tailrace_{name}:INTEGRATION\n")
    (site / f"tailrace_{name}.py").write_text(source)
    return site
