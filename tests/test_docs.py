"""The documents are held to the code: what they show runs, what they link to is there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tailrace.cli.decode import Said
from tailrace.messages import Completion

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
STREAM = (
    b'event: message_start\ndata: {"type":"message_start","message":{"role":"assistant","content":[],"usage":{}}}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
    b'"content_block":{"type":"text","text":""}}\n\n'
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
    b'"delta":{"type":"text_delta","text":"Hello!"}}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_within_the_project_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", document.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (document.parent / target).exists(), target


def test_the_readmes_python_decodes_a_stream(capsys: pytest.CaptureFixture[str]) -> None:
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, object] = {"pieces": [STREAM[i : i + 7] for i in range(0, len(STREAM), 7)]}
    exec(code, names)  # noqa: S102 - our own document
    assert isinstance(names["completion"], Completion)
    assert names["completion"].text == "Hello!"
    assert "TextDelta(text='Hello!'" in capsys.readouterr().out


def test_the_readme_shows_the_output_of_decode_as_it_is() -> None:
    [line] = re.findall(r"^\{.*\}$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert list(json.loads(line)) == list(Said.__struct_fields__)


def test_the_readme_opens_with_the_two_commands() -> None:
    opening = (ROOT / "README.md").read_text(encoding="utf-8").split("```")[1]
    assert [line.split("#")[0].strip() for line in opening.strip().splitlines()] == ["make chat", "make test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"(?m)(?:`|^)make ([a-z]+)", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert f"\n{target}:" in makefile, target
