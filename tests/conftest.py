from __future__ import annotations

import gc
import logging
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import proof.broken_grammar  # noqa: F401 - adds its edits to the scenarios of every test
import pytest
from hypothesis import settings

from certificates import read_one_authority
from long_tests import dealt
from postgres_server import PostgresServer, running
from properties import PROFILE, QUICK_EXAMPLES
from slow_tests import is_slow, mark_slow

# A busy machine is no counterexample: no deadline. `make test` tries few examples of a property.
settings.register_profile("full", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=QUICK_EXAMPLES)
settings.load_profile(PROFILE)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As a shell starts what it runs in the background. The commands that tests interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
read_one_authority()
TESTS = Path(__file__).parent


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing of what is imported here is garbage: a worker holds ten thousand tests and every library they import, and
    no collection need look at those again. A collection for each 700 objects that tests make would take a twentieth of
    the time of all of them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 10, 10)
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The quick tests do not pay for importing the slow ones."""
    skips_slow = config.option.markexpr == "not slow"
    return (skips_slow and is_slow(collection_path.relative_to(TESTS).as_posix())) or None


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    mark_slow(item)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers > 1:
        items[:] = dealt(items, workers)


@pytest.fixture(autouse=True)
def _quiet_logs() -> Iterator[None]:
    """A test that configures logging leaves none of it behind."""
    logger = logging.getLogger("tailrace")
    handlers, level, propagate = list(logger.handlers), logger.level, logger.propagate
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)
    logger.propagate = propagate


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One for this test process. A test has a schema of its own in it: `postgres_url`."""
    with running() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    return postgres_server.url()
