"""What automations speak of an answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.integrations.homeassistant.outbound import spoken_text


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("# Today\n\nIt is **21 °C**, _warm_ in `kitchen`.\n", "Today\n\nIt is 21 °C, warm in kitchen."),
        ("- milk\n- bread\n  - rye\n\n1. first\n2. second", "milk\nbread\nrye\n\n1. first\n2. second"),
        ("| room | °C |\n|---|---|\n| hall | 19 |\n| attic | |", "room, °C\nhall, 19\nattic"),
        ("> said\n\n---\n\nafter", "said\n\n\nafter"),
        ("See [the forecast](https://e.org/a?b=c), or <https://e.org/x>.", "See the forecast, or e.org."),
        ("![a map](https://e.org/m.png) [a](http://[)", "a map a"),
        ("```sh\nls -l | wc\n```", "ls -l | wc"),
        ("- [x] milk\n1. [ ] bread", "☑ milk\n1. ☐ bread"),
        ("", ""),
    ],
)
def test_nothing_is_read_aloud_that_is_only_there_to_be_seen(text: str, spoken: str) -> None:
    assert spoken_text(text) == spoken


@given(
    st.lists(st.sampled_from(["word", "**", "`", "> ", "- ", "\n", "|", "](https://e.org)", "[", "---\n"]), max_size=40)
)
def test_no_word_is_left_out(pieces: list[str]) -> None:
    words = [f"{piece}{number} " if piece == "word" else piece for number, piece in enumerate(pieces)]
    spoken = spoken_text("".join(words))
    assert [word for word in words if word.startswith("word") and word.strip() not in spoken] == []
