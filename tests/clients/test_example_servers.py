"""`npm start` of the pages in `examples/frontends`: each on a port of its own, which the docs let in."""

from __future__ import annotations

import json
import re

from clients.installed import ROOT

EXAMPLES = ROOT / "examples/frontends"


def test_every_page_has_a_port_of_its_own_and_needs_no_stdin() -> None:
    starts = {
        page.parent.name: json.loads(page.read_text(encoding="utf-8"))["scripts"]["start"]
        for page in EXAMPLES.glob("*/package.json")
    }
    origins = {name: re.findall(r"--serve=(\S+)", start) for name, start in starts.items()}
    assert origins == {"ag_ui": ["127.0.0.1:8000"], "use_chat": ["127.0.0.1:8001"]}
    assert all("--watch=forever" in start for start in starts.values()), "esbuild ends with its stdin otherwise"
    pages = [ROOT / f"docs/integrations/{name}.md" for name in ("ag_ui", "ai_sdk")]
    documented = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert re.findall(r'cors_origins: \["http://([^"]+)"\]', documented) == ["127.0.0.1:8000", "127.0.0.1:8001"]
