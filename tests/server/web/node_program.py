"""The page's modules that need no document, run by node."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

NODE = shutil.which("node")
WEB = Path(__file__).parents[3] / "src/tailrace/server/web"
needs_node = pytest.mark.skipif(NODE is None, reason="needs node")


async def node(home: Path, script: str, *args: str) -> Any:
    """What the script logs as JSON. It runs among the page's modules, beside those of an answer."""
    shutil.copytree(WEB, home / "web", dirs_exist_ok=True)
    home = home / "web" / "answer"
    shutil.copy(Path(__file__).with_name("page_dom.mjs"), home)
    (home.parent / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    (home / "test.mjs").write_text('import { Node } from "./page_dom.mjs";\n' + script, encoding="utf-8")
    assert NODE is not None
    child = await asyncio.create_subprocess_exec(
        *(NODE, "test.mjs", *args), cwd=home, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(60):
            out, err = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    assert child.returncode == 0, err.decode()
    return json.loads(out)
