"""Which signals can ever be taken is known from the definition, where its steps are all ours."""

from __future__ import annotations

import pytest

from flows.stages import step
from tailrace.flows.definition.definition import parsed
from tailrace.flows.definition.signals import unknown_signal


@pytest.mark.parametrize(
    ("blocks", "mistake"),
    [
        ([step("w", {"signal": "go"}, "wait_signal")], ""),
        ([step("w", {"signal": "release"}, "wait_signal")], "; there are: release"),
        ([step("s", {"seconds": 1}, "sleep")], "; there are: none"),
        ([step("w", {"signal": "{{input.name}}"}, "wait_signal")], ""),  # any name
        ([step("d", {}, "do")], ""),  # a program's own handler may wait for any
        ([{"type": "parallel", "id": "p", "branches": [[step("w", {"signal": "go"}, "wait_signal")]]}], ""),
    ],
)
def test_a_signal_that_nothing_takes_is_a_mistake(blocks: list[dict[str, object]], mistake: str) -> None:
    said = unknown_signal(parsed({"name": "s", "blocks": blocks}), "go")
    assert said == (f"there is no step that waits for the signal 'go'{mistake}" if mistake else "")
