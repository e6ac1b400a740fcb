from __future__ import annotations

from pathlib import Path

import pytest

from tools.tool_context import Workplace


@pytest.fixture
def here(tmp_path: Path) -> Workplace:
    directory = tmp_path / "work"
    directory.mkdir()
    return Workplace(directory)
