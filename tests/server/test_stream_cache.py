"""Viewers behind nginx's cache: each has the whole run, and the server is asked for each range once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from bench.stream_cache import PIECES, watch


@pytest.mark.skipif(shutil.which("nginx", path="/usr/sbin:/usr/bin") is None, reason="no nginx; apt install nginx")
async def test_the_server_is_asked_for_each_range_once(tmp_path: Path) -> None:
    seen = await watch(tmp_path, 100, before=2000, every_s=0.2)
    assert seen.whole == 100
    assert seen.answers >= 100 * 2
    assert seen.asked == seen.ranges <= PIECES + 2
