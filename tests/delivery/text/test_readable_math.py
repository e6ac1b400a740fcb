"""Formulas and footnotes in a terminal and in chats: what is simple is readable, all else stays as it was written."""

from __future__ import annotations

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.delivery.text.readable_math import in_unicode, readable


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (r"$\sum_{i=1}^{n} i = \frac{n(n+1)}{2}$", "∑ᵢ₌₁ⁿ i = (n(n+1))/2"),
        (r"\(E = mc^2\)", "E = mc²"),
        ("$E = mc^2$[^1]", "E = mc²[^1]"),  # no further power
        (r"\[ \int_0^\infty e^{-x} dx \]", "∫₀^∞ e⁻ˣ dx"),
        ("$$\nx_{ij} \\le \\lambda\n$$", "xᵢⱼ ≤ λ"),
        (r"$\sqrt{\pi} \approx 1.77$", "√π ≈ 1.77"),
        (r"$v = \sqrt{2gh}$", "v = √(2gh)"),
        ("Proven[^12].", "Proven¹²."),
        ("[^1]: By Gauss.", "¹ By Gauss."),
        ("$a*b = c$", r"a\*b = c"),  # no emphasis comes of it
    ],
)
def test_the_simple_ones_are_readable(written: str, shown: str) -> None:
    assert readable(written) == shown


@pytest.mark.parametrize(
    "text",
    [
        "It costs $5 and $6.",
        "$HOME/bin and $PATH",
        "export PATH=$HOME_DIR:$PATH",
        "set $A=$B",
        "[notes](https://example.com/$x^2$)",
        "https://example.com/?a=$x^2$",
        "`$x^2$ and [^1]`",
        "```\n$x^2$\n```",
        r"$\begin{matrix} a \end{matrix}$",
        r"$\frac{1}$",
        "a[^note]",
        "[1] and [^a]: b",
    ],
)
def test_all_else_stays_as_it_was_written(text: str) -> None:
    assert readable(text) == text


def test_a_long_row_of_backticks_costs_little() -> None:
    text = "`" * 200_000 + "$x^2$"
    began = process_time()
    readable(text)
    assert process_time() - began < 1


@given(st.text(alphabet="\\{}^_$ab1 fracsqrt[]`", max_size=60))
def test_no_formula_fails(text: str) -> None:
    readable(text)
    in_unicode(text)
