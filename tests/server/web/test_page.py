"""The web page's files: what is served, and that it loads nothing of others."""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, join, normpath

from server.http_server import running_server

WEB = Path(__file__).parents[3] / "src/tailrace/server/web"


async def test_every_file_that_the_page_names_is_served(tmp_path: Path) -> None:
    seen: set[str] = set()
    async with running_server(tmp_path, env={"TAILRACE_API_KEY": "some-key-or-other"}) as server:
        due = ["/"]
        while due:
            path = due.pop()
            async with server.client.get(server.url + path) as response:
                assert response.status == 200, path
                assert "default-src 'none'" in response.headers["Content-Security-Policy"]
                assert "unsafe" not in response.headers["Content-Security-Policy"]
                source = await response.text()
            assert "innerHTML" not in source, path
            named = re.findall(r'(?:src|href)="(/web/[^"]+)"', source) if path == "/" else []
            if path.endswith(".js"):
                modules = re.findall(r'(?:from |import\()"(\.[^"]+)"', source)
                named = [normpath(join(dirname(path), module)) for module in modules]
            due += set(named) - seen
            seen.update(named)
    seen.add("/web/inspector/exported.js")  # the entry of an exported file, which is not of the page
    assert seen == {f"/web/{file.relative_to(WEB)}" for kind in ("js", "css") for file in WEB.rglob(f"*.{kind}")}
