"""The languages say the same things, with the same placeholders."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from custom_components.tailrace import const
from custom_components.tailrace.commands import _NEW
from custom_components.tailrace.yes_no import _YES

INTEGRATION = Path(const.__file__).parent
TRANSLATIONS = sorted((INTEGRATION / "translations").glob("*.json"))


def _sentences(tree: dict[str, Any], path: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            found |= _sentences(value, f"{path}{name}.")
        else:
            found[path + name] = value
    return found


def test_english_is_the_original() -> None:
    english = (INTEGRATION / "translations/en.json").read_text(encoding="utf-8")
    assert (INTEGRATION / "strings.json").read_text(encoding="utf-8") == english


def test_whoever_can_answer_an_approval_is_asked_in_the_same_language() -> None:
    assert {path.stem for path in TRANSLATIONS} == set(_YES)


@pytest.mark.parametrize("path", TRANSLATIONS, ids=lambda path: path.stem)
def test_a_translation_is_complete(path: Path) -> None:
    english = _sentences(json.loads((INTEGRATION / "strings.json").read_text(encoding="utf-8")))
    translated = _sentences(json.loads(path.read_text(encoding="utf-8")))
    with_forms = path.stem in ("de", "en")  # in the others Home Assistant shows the English forms
    assert list(translated) == [name for name in english if with_forms or name.startswith("common.")]
    for name, sentence in translated.items():
        assert sorted(re.findall(r"\{\w+\}", sentence)) == sorted(re.findall(r"\{\w+\}", english[name])), name


@pytest.mark.parametrize("path", TRANSLATIONS, ids=lambda path: path.stem)
def test_the_words_that_begin_anew_are_those_that_are_understood(path: Path) -> None:
    advice = json.loads(path.read_text(encoding="utf-8"))["common"]["advice_anew"].lower()
    assert any(re.search(rf"[„“”«]\s?{words}\s?[“”»]", advice) for words in _NEW[path.stem].split("|"))


def test_every_sentence_that_is_spoken_is_written() -> None:
    written = set(json.loads((INTEGRATION / "strings.json").read_text(encoding="utf-8"))["common"])
    code = "".join(path.read_text(encoding="utf-8") for path in INTEGRATION.glob("*.py"))
    assert all(f'"{name}"' in code for name in written)
    assert set(re.findall(r'sentence\([^"()]*"(\w+)"', code)) <= written


def test_the_version_is_the_projects() -> None:
    manifest = json.loads((INTEGRATION / "manifest.json").read_text(encoding="utf-8"))
    project = (INTEGRATION.parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{manifest["version"]}"' in project
