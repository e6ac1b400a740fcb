"""Pages of `examples/frontends`, built as their package.json says and opened in a real browser."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from clients.installed import ROOT, client_environment, clients_dir
from server.http_server import RunningServer, running_server
from server.web.chromium import Browser, Tab, browsing
from tailrace.testing.provider import Reply, Scenario

EXAMPLES = ROOT / "examples/frontends"
# A page of ours has no inline script, no inline style and no `eval`: it can be served under a policy as strict as this.
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src {server}"


def built_page(name: str, home: Path, **instead: Path) -> Path:
    """The example's directory in `home`, with the bundle that `npm run build` makes. `instead`: files that take the
    place of the example's, by their names without an ending."""
    page = shutil.copytree(EXAMPLES / name, home / name)
    for stem, path in instead.items():
        shutil.copy(path, page / f"{stem}{path.suffix}")
    (page / "node_modules").symlink_to(clients_dir() / "node_modules")
    command = json.loads((page / "package.json").read_text(encoding="utf-8"))["scripts"]["build"].split()
    subprocess.run(command, cwd=page, env=client_environment(home, {}), check=True, capture_output=True, timeout=60)
    return page


@asynccontextmanager
async def opened_page(
    devtools: str, built: Path, home: Path, *script: str | Scenario | Reply, config: str = "", **kwargs: Any
) -> AsyncGenerator[tuple[RunningServer, Browser, Tab], None]:
    """The page on an origin of its own, in front of a server that lets it in."""
    server_url = ""

    async def under_policy(_request: web.Request, response: web.StreamResponse) -> None:
        response.headers["Content-Security-Policy"] = POLICY.format(server=server_url)

    application = web.Application()
    application.router.add_static("/", built)
    application.on_response_prepare.append(under_policy)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        origin = f"http://127.0.0.1:{runner.addresses[0][1]}"
        config += f"server: {{cors_origins: ['{origin}'], drain_s: 0.05}}\n"
        async with running_server(home, *script, config=config, **kwargs) as server, browsing(devtools) as browser:
            server_url = server.url
            yield server, browser, await browser.tab(f"{origin}/index.html?server={server.url}#thread-1")
    finally:
        await runner.cleanup()
