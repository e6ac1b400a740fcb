"""The web page's files: what is served, how much it is, and that it loads nothing of others."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from posixpath import dirname, join, normpath

from server.http_server import running_server

MOST_BYTES = 250_000  # of the page before a formula is shown, compressed
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
            assert "innerHTML" not in source or "/vendor/" in path, path
            named = re.findall(r'(?:src|href)="(/web/[^"#]+)', source) if path == "/" else []
            if path.endswith(".js"):
                modules = re.findall(r'(?:from |import\(|new SharedWorker\(|[A-Z]+ = )"([./][^"]+\.\w+)"', source)
                named = [normpath(join(dirname(path), module)) for module in modules]
            due += set(named) - seen
            seen.update(named)
    seen.add("/web/inspector/exported.js")  # the entry of an exported file, which is not of the page
    kinds = ("js", "css", "svg")
    seen.remove("/web/conversation/slash_commands.js")  # made of the server's table
    assert seen == {f"/web/{file.relative_to(WEB)}" for kind in kinds for file in WEB.rglob(f"*.{kind}")}


def test_the_whole_page_stays_small() -> None:
    served = [file for kind in ("html", "js", "css", "svg") for file in WEB.rglob(f"*.{kind}")]
    later = {WEB / "vendor" / "katex.js", *(WEB / "api_docs").iterdir()}  # which a formula or /docs loads
    sizes = {str(file): len(gzip.compress(file.read_bytes())) for file in served if file not in later}
    assert sum(sizes.values()) < MOST_BYTES, sizes


def test_the_sprite_has_the_icons_that_the_page_names_and_no_others() -> None:
    sprite = (WEB / "vendor/icons.svg").read_text(encoding="utf-8")
    sources = [file for kind in ("html", "js") for file in WEB.rglob(f"*.{kind}") if file.parent.name != "vendor"]
    source = "\n".join(file.read_text(encoding="utf-8") for file in sources)
    drawn = set(re.findall(r'<symbol id="([^"]+)"', sprite))
    assert {name for name in drawn if not re.search(rf'["#]{name}"', source)} == set()
    named = {a or b for a, b in re.findall(r'icons.svg#([a-z0-9-]+)"|icon(?:Button|Link)?\("([a-z0-9-]+)"', source)}
    assert named
    assert named <= drawn


def test_the_rules_of_a_view_hold_in_that_view_alone() -> None:
    """Names such as `bar`, `status` and `item` mean something else elsewhere on the page."""
    roots = {"inspector": ("#inspector", ":where(#inspector)", ".fork-dialog"), "instance": ("#instance",)}
    for view, own in roots.items():
        files = sorted((WEB / "style").glob(f"{view}*.css"))
        style = "\n".join(file.read_text(encoding="utf-8") for file in files)
        style = re.sub(r"/\*.*?\*/", "", style, flags=re.DOTALL)
        style = re.sub(r"@keyframes [\w-]+ \{.*?\}\s*\}", "", style, flags=re.DOTALL)
        rules = re.findall(r"(?:^|(?<=[{}]))\s*([^{}@;]+?)\s*\{", style)
        selectors = [each.strip() for rule in rules for each in rule.split(",\n")]
        assert len(selectors) > 30
        others = [each for each in selectors if not each.startswith((*own, f'body[data-view="{view}"]'))]
        assert others == [], view
