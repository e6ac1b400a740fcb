"""The store and the number of nodes that every scenario here runs with."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def store(tmp_path: Path) -> str:
    """The store's URL, the same for every node."""
    return f"sqlite:///{tmp_path}/shared.db"


@pytest.fixture
def node_count() -> int:
    return 2
