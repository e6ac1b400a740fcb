"""The store and the number of nodes that every scenario here runs with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.forked import Forker, forker
from cluster.nodes import SharedStore
from redis_server import redis_server


@pytest.fixture(scope="session")
def node_forker() -> Iterator[Forker]:
    with forker() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path, node_forker: Forker) -> Iterator[SharedStore]:
    """The store of every node: one file, PostgreSQL, or PostgreSQL with Redis beside it."""
    if request.param == "sqlite":
        yield SharedStore(node_forker, request.param, f"sqlite:///{tmp_path}/shared.db")
        return
    url: str = request.getfixturevalue("postgres_url")
    if request.param == "postgres":
        yield SharedStore(node_forker, request.param, url)
        return
    with redis_server(tmp_path) as redis:
        yield SharedStore(node_forker, request.param, url, redis.url)


@pytest.fixture
def node_count() -> int:
    return 3
