"""Markdown as Discord reads it: what means something else there is written so that it does not."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.integrations.discord.adapter import discord_text

ALIKE = "# Title\n**bold** *it* `a || b` `` c ` || d ``\n- one\n> said\n```py\na || b\n```\nhttps://e.org/?a||b"


def test_what_both_read_alike_stays_as_it_is() -> None:
    assert discord_text(ALIKE) == ALIKE


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("if a || b || c", r"if a \|\| b \|\| c", id="spoilers"),
        pytest.param("`a || b` || `c", r"`a || b` \|\| \`c", id="spoilers-around-code"),
        pytest.param("so ```x``` and ```` y ``` ````", "so `x` and `` y ``` ``", id="many-backticks-in-a-line"),
        pytest.param(r"a \|\| b", r"a \|\| b", id="escaped-already"),
        pytest.param(">>> print(1)\n\nnext", "> print(1)\n\nnext", id="a-quote-of-all-that-follows"),
        pytest.param("> > twice\n>> twice", "> twice\n> twice", id="nested-quotes"),
        pytest.param("~~~python\nx = 1\n~~~\ny", "```python\nx = 1\n```\ny", id="tildes"),
        pytest.param("````md\n```py\nx\n```\n````", "```md\n``\u200b`py\nx\n``\u200b`\n```", id="four-backticks"),
        pytest.param("```py\ns = '```'\n```\ny", "```py\ns = '``\u200b`'\n```\ny", id="backticks-in-code"),
        pytest.param('```py title="a.py"\nx\n```', "```py\nx\n```", id="more-than-a-language"),
        pytest.param("```{.py}\nx\n```", "```\nx\n```", id="no-language"),
        pytest.param("a | b\n--|--\n1 | 2", "```\na  b\n-  -\n1  2\n```", id="a-table-without-outer-bars"),
        pytest.param("- [x] done\n  - [ ] open\n1. [X] first", "☑ done\n  ☐ open\n1. ☑ first", id="tasks"),
        pytest.param(
            "`- [x] a`\n- [x]y\n- [x](https://e.org)", "`- [x] a`\n- \\[x]y\n- [x](https://e.org)", id="no-tasks"
        ),
        pytest.param("2*3*4 = 2**3*3 and *so*", r"2\*3\*4 = 2\*\*3\*3 and *so*", id="products"),
        pytest.param(r"\(a*b*c\), $$x_1 \, x_2$$", r"a\*b\*c, x₁ x₂", id="math"),
        pytest.param(r"\(a \(b*c\) \[", r"\\(a \\(b\*c\\) \[", id="math-that-begins-twice"),
        pytest.param("see ![pic](https://e.org/p.png)!", "see [pic](https://e.org/p.png)!", id="an-image"),
        pytest.param('![](https://e.org/p_(1).png "T")', "https://e.org/p_(1).png", id="an-image-without-words"),
        pytest.param("![pic](data:image/png;base64,AA)", "pic", id="an-image-without-an-address"),
        pytest.param("[![b](https://i.org/b)](https://l.org)", "[b](https://l.org)", id="an-image-in-a-link"),
        pytest.param("`![a](https://e.org)`", "`![a](https://e.org)`", id="an-image-in-code"),
        pytest.param("| a |\n|---|\n| x\\|\\|y |", "```\na\n----\nx||y\n```", id="bars-in-a-table"),
    ],
)
def test_what_discord_reads_otherwise_is_shown_as_it_was_meant(text: str, shown: str) -> None:
    assert discord_text(text) == shown


@pytest.mark.parametrize(
    ("before", "unit"),
    [
        pytest.param("", r"\( ", id="math"),
        pytest.param("", r"\[ ", id="math-of-its-own"),
        pytest.param("![](", " ", id="an-image"),
        pytest.param("![](a", "(b)", id="an-address-with-brackets"),
        pytest.param("||", " ", id="blanks"),
        pytest.param("", " ", id="no-task"),
    ],
)
def test_what_never_ends_is_read_in_linear_time(before: str, unit: str) -> None:
    """Counted in processor time: a regular expression is one call."""

    def cost(count: int) -> float:
        text = f"{before}{unit * count}||"
        began = time.process_time()
        discord_text(text)
        return time.process_time() - began

    few = min(cost(5_000) for _ in range(3))
    assert cost(20_000) < 12 * few + 0.5


@given(text=st.text(alphabet="`|~>ab \n![]()-x", max_size=60))
def test_nothing_that_a_model_writes_makes_it_fail_and_prose_keeps_its_words(text: str) -> None:
    discord_text(text)
    prose = "\n".join(f"w{line}" for line in text.split("\n"))
    assert discord_text(prose).count("a") == prose.count("a")
