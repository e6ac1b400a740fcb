from __future__ import annotations

import pytest

from tailrace.errors import ConfigError
from tailrace.journal.open_journal import open_journal


async def test_J114_a_store_that_is_not_there_is_refused_without_its_password() -> None:
    with pytest.raises(ConfigError) as refused:
        async with open_journal("mysql://ann:hunter2@db/x", None):
            pass
    assert "no store for mysql:" in str(refused.value)
    assert "hunter2" not in str(refused.value)
