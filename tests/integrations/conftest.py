"""One homeserver for all the tests of a run that talk to one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integrations.matrix.synapse import Homeserver, homeserver, synapse_python


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Homeserver]:
    python = synapse_python()
    if python is None:
        pytest.skip("Synapse is not installed: set TAILRACE_SYNAPSE_PYTHON, or run `make synapse`")
    with homeserver(python, tmp_path_factory.mktemp("synapse")) as started:
        yield started
