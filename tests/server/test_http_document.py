"""The blocks of docs/http.md that ask the server with curl run as they stand."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from cli.commands.serve_process import served
from tailrace.testing.provider import FaultyProvider, reply

ROOT = Path(__file__).parents[2]
CURL = re.compile(r"^```sh\n(.*?curl.*?)^```", re.MULTILINE | re.DOTALL)
ENDS = [("event: run_finished", "It carries the water away."), ("event: done", "The wheel turns.")]
CONFIG = """
model: {{provider: fake, name: ok}}
providers: {{fake: {{dialect: chat, base_url: "{url}"}}}}
"""


async def test_the_blocks_with_curl_run_as_they_stand(tmp_path: Path) -> None:
    script = [reply(ENDS[0][1]), reply("Wheel, weir, tailrace."), reply(ENDS[1][1])]
    async with FaultyProvider(script) as provider:
        (tmp_path / "config.yaml").write_text(CONFIG.format(url=provider.openai_url))
        async with served(tmp_path) as server:
            blocks = CURL.findall((ROOT / "docs" / "http.md").read_text(encoding="utf-8"))
            for block, (end, text) in zip(blocks, ENDS, strict=True):
                typed = block.replace("http://127.0.0.1:8642", server.url)
                child = await asyncio.create_subprocess_exec(
                    *("bash", "-euo", "pipefail", "-c", typed), stdout=asyncio.subprocess.PIPE, cwd=ROOT
                )
                out, _ = await child.communicate()
                shown = out.decode()
                assert child.returncode == 0, shown
                assert shown.count(end) == block.count("/stream"), shown
                assert text in shown
