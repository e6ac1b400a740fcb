from __future__ import annotations

import pytest

from relay.built_extension import compiled
from tailrace.providers.transport import extension


@pytest.fixture(params=["Python", "C"])
def relays_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether the extension is installed."""
    monkeypatch.setattr(extension, "EXTENSION", compiled() if request.param == "C" else None)
    name: str = request.param
    return name
