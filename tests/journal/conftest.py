from __future__ import annotations

from pathlib import Path

import pytest

from journal.stores import Store


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty database of each kind."""
    if request.param == "postgres":
        return Store(request.getfixturevalue("postgres_url"))
    return Store(f"sqlite:///{tmp_path / 'runs.db'}")
