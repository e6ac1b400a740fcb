"""The embedded model's real weights for tests: fetched once per machine, shared by all workers and sessions."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from certificates import machines_authorities
from tailrace.errors import Permanent
from tailrace.providers.local.weights import SMOLLM2, Fetch

MODELS = Path(os.environ.get("TAILRACE_TEST_MODELS") or Path.home() / ".cache" / "tailrace-tests" / "models")


@pytest.fixture(scope="session")
def real_models() -> Path:
    """The directory that holds the weights. Several workers may ask at once: the fetch itself takes turns."""
    pytest.importorskip("xllamacpp", reason="the extra `local` is not installed")
    try:
        with machines_authorities():
            Fetch(SMOLLM2, MODELS, screen=io.StringIO()).run()
    except Permanent as exc:
        pytest.skip(f"no weights: {exc}")
    return MODELS
