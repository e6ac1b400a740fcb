"""Spellings that must be refused, asked about, or let through. The lists are the specification."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.agent.safety.danger import assess

CORPUS = Path(__file__).parent / "corpus"


def lines(name: str) -> list[str]:
    return [line for line in (CORPUS / name).read_text(encoding="utf-8").split("\n") if line]


@pytest.mark.parametrize(("name", "verdict"), [("refuse.txt", "refuse"), ("ask.txt", "ask"), ("harmless.txt", "allow")])
def test_J109_every_spelling_is_seen_for_what_it_does(name: str, verdict: str) -> None:
    wrong = {line: assess(line) for line in lines(name) if assess(line).verdict != verdict}
    assert wrong == {}


def test_the_lists_are_long_enough() -> None:
    assert len(lines("refuse.txt")) + len(lines("ask.txt")) >= 200
    assert len(lines("harmless.txt")) >= 200


@pytest.mark.parametrize(
    "wrapper", ["{}", "true; {}", "({})", "bash -c '{}'", "sudo {}", "x=1 {}", "echo `{}`", "{} &"]
)
def test_J109_no_wrapper_makes_a_command_harmless(wrapper: str) -> None:
    for line in ("rm -rf build", "git push --force", "kill 12", "systemctl stop x"):
        assert assess(wrapper.format(line)).verdict != "allow"


@given(st.text(max_size=200))
def test_any_text_is_assessed_without_a_crash(text: str) -> None:
    assert assess(text).verdict in ("allow", "ask", "refuse")


@given(
    st.lists(st.sampled_from(["rm", "-rf", "/", "'", '"', "$(", ")", "`", "\\", " ", ";", "|", "{", "}", "<(", "${"]))
)
def test_J109_broken_quoting_is_assessed_without_a_crash(pieces: list[str]) -> None:
    assert assess("".join(pieces)).verdict in ("allow", "ask", "refuse")
