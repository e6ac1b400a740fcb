"""The frame of the benchmarks: what is found, how it is printed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.attacks import DOCUMENTED, PAGE, Figures, documented

from attacks.catalogue import ATTACKS

ROOT = Path(__file__).parents[1]


def bench(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *args], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )


def test_an_unknown_name_is_refused_with_what_there_is() -> None:
    done = bench("frobnicate")
    assert done.returncode == 2
    assert done.stderr.startswith("error: no such benchmark: frobnicate; there are: ")
    assert "table" not in done.stderr


def test_help_says_which_there_are() -> None:
    done = bench("--help")
    assert done.returncode == 0
    assert "python -m bench wire journal" in done.stdout
    assert ", journal, " in done.stdout


def test_a_table_lines_up() -> None:
    code = (
        "from bench.table import Table\nt = Table('rates', 'what', 'tokens/s', 'ratio')\n"
        "t.row('ours', 227000, 45.4)\nt.row('the SDK', 5000.0, 1.0)\nprint(t)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == (
        "rates\n"
        "what     tokens/s  ratio\n"
        "───────  ────────  ─────\n"
        "ours      227,000   45.4\n"
        "the SDK     5,000      1\n"
    )


def test_the_table_of_attacks_is_written_into_its_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    measured = {attack.name: Figures(1.4, 20.6, 30.0) for attack in ATTACKS}
    measured |= {"growing_bodies": Figures(7.0, 80.0, 95.2), "shell_braces": Figures(3.0, 9.0, 40.0)}
    written = documented(page, measured, 0.25)
    assert "\n300 growing bodies of 2 MB | 7 ms | 80 ms | +95 MB\n" in written
    assert "\neach other | 3 ms | 21 ms | +40 MB\n\n" in written
    assert "load 0.2 before.\n\n[Threat model]" in written
    assert documented(written, measured, 0.25) == written
    assert set(DOCUMENTED) < set(measured)
    head = page.index("attack | loop")
    assert written[:head] == page[:head]
