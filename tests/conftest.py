from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("tailrace", deadline=None)  # a busy machine is no counterexample
settings.load_profile("tailrace")


@pytest.fixture(autouse=True)
def _quiet_logs() -> Iterator[None]:
    """A test that configures logging leaves none of it behind."""
    logger = logging.getLogger("tailrace")
    handlers, level, propagate = list(logger.handlers), logger.level, logger.propagate
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)
    logger.propagate = propagate
