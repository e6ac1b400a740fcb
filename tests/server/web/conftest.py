"""One browser for all tests of the page that a worker runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from server.web import chromium


@pytest.fixture(scope="session")
def devtools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with chromium.started(tmp_path_factory.mktemp("chromium")) as address:
        yield address
