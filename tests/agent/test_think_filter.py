from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.agent.think_filter import Filtered, ThinkFilter, split_thoughts

CASES = {
    "plain": ("Hello <b>world</b>.", "Hello <b>world</b>.", ""),
    "at the start": ("<think>hm</think>\n\nHello", "Hello", "hm"),
    "on a line of its own": ("A\n<thinking>x</thinking>B", "A\nB", "x"),
    "M150 in a sentence": ("The <think> tag is …\nand more.", "The <think> tag is …\nand more.", ""),
    "M150 a pair in a sentence": ("A <think>x</think> B\n</think>", "A <think>x</think> B\n", ""),
    "M150 closing tag in a sentence": ("Use </think> to close it.", "Use </think> to close it.", ""),
    "M150 a format that is shown": ("Write <think>\nso\n</think>\nthen", "Write <think>\nso\n</think>\nthen", ""),
    "M150 glued to a word": ("A<thinking>x</thinking>B", "A<thinking>x</thinking>B", ""),
    "M150 in a list": ("- <think>: thoughts\n1. </think>: end", "- <think>: thoughts\n1. </think>: end", ""),
    "M150 in a quotation": ("> <think>\nso", "> <think>\nso", ""),
    "M150 mentioned in a thought": ("<think>the <think> tag\n</think>\nIt is.", "It is.", "the <think> tag\n"),
    "indented code": ("So:\n\n    <think>\n\t<think>\nok", "So:\n\n    <think>\n\t<think>\nok", ""),
    "indented by less": ("So:\n  <think>x</think>\nok", "So:\n  \nok", "x"),
    "thought": ("<thought>x</thought>ok", "ok", "x"),
    "reasoning": ("<reasoning>r</reasoning>ok", "ok", "r"),
    "vendor": ("<mm:think>m</mm:think>ok", "ok", "m"),
    "upper case": ("<THINK>x</Think>ok", "ok", "x"),
    "attributes": ('<think budget="1">x</think >ok', "ok", "x"),
    "nested": ("<think>a<think>b</think>c</think>d", "d", "abc"),
    "other tag inside": ("<think>a<reasoning>b</think>c", "c", "a<reasoning>b"),
    "C43 unclosed": ("Yes.\n<think>never shown", "Yes.\n", "never shown"),
    "C43 unclosed from the start": ("\n <think>never shown", "\n ", "never shown"),
    "C43 cut in the closing tag": ("<think>never shown</thi", "", "never shown</thi"),
    "cut in the opening tag": ("Yes <thi", "Yes <thi", ""),
    "leaked closing tag": ("Hello</think> there", "Hello there", ""),
    "almost a tag": ("a <thinker> b <think-tank> c", "a <thinker> b <think-tank> c", ""),
    "less than": ("1 < 2 and 3 <4", "1 < 2 and 3 <4", ""),
    "inline code": ("Use `<think>` and ``<think>`x`` here", "Use `<think>` and ``<think>`x`` here", ""),
    "open tick ends with the line": ("a ` b\n<think>x</think>c", "a ` b\nc", "x"),
    "fence": ("See\n```xml\n<think>x</think>\n```\n<think>y</think>z", "See\n```xml\n<think>x</think>\n```\nz", "y"),
    "tilde fence": ("~~~\n<think>\n~~~\n<think>y</think>z", "~~~\n<think>\n~~~\nz", "y"),
    "longer fence": ("````\n```\n<think>\n````\nok", "````\n```\n<think>\n````\nok", ""),
    "ticks in a thought": ("<think>a ` b ``` c</think>d", "d", "a ` b ``` c"),
    "span that looks like a fence": ("```x``` is\n<think>y</think>z", "```x``` is\nz", "y"),
    "open span of three": ("```x` is\n<think>y</think>z", "```x` is\nz", "y"),
    "info line in a fence": ("```\n```py\n<think>\n```\n<think>y</think>z", "```\n```py\n<think>\n```\nz", "y"),
    "fence in a list": ("1. ```xml\n<think>\n   ```  \n<think>y</think>z", "1. ```xml\n<think>\n   ```  \nz", "y"),
    "leading blanks": ("\n\n    x = 1", "\n\n    x = 1", ""),
    "nothing but blanks": (" \n\n", " \n\n", ""),
    "blank lines after a thought": ("<think>x</think>  \n \n    y = 1\n\nz", "    y = 1\n\nz", "x"),
    "many blanks after a thought": ("<think>x</think>" + " " * 201 + "\ny", " " * 201 + "\ny", "x"),
    "two thoughts": ("<think>a</think>\n \n <thought>b</thought>\nok", "ok", "ab"),
    "long attributes": (f'<think a="{"b" * 90}">x</think>ok', "ok", "x"),
    "too long for a tag": (f"<think {'b' * 120}>x", f"<think {'b' * 120}>x", ""),
}


@pytest.mark.parametrize("name", CASES)
def test_C42_what_is_shown_and_what_is_thought(name: str) -> None:
    text, shown, thought = CASES[name]
    assert split_thoughts(text) == Filtered(shown, thought)


@pytest.mark.parametrize("name", CASES)
def test_C42_a_tag_split_anywhere_is_found(name: str) -> None:
    text, shown, thought = CASES[name]
    for step in (1, 2, 3, 5):
        assert pieces(text, [text[i : i + step] for i in range(0, len(text), step)]) == Filtered(shown, thought)


def pieces(_text: str, parts: list[str]) -> Filtered:
    filter_ = ThinkFilter()
    out = [*(filter_.feed(part) for part in parts), filter_.close()]
    return Filtered("".join(o.shown for o in out), "".join(o.thought for o in out))


MORE_BITS = ["<think a", "</reasoning>", "    ", "\t", "- ", "1. ", "> ", ".", "``", "~", "\r\n", "é"]
BITS = [
    *MORE_BITS,
    "<think>",
    "</think>",
    "<",
    ">",
    "`",
    "```",
    "~~~",
    "\n",
    " ",
    "a",
    "think",
    "/",
    "<mm:think>",
    "</mm:think>",
]


@example(bits=["<think>", "</think>", "```", "\n", "</think>", "a"], cuts=[7, 9])  # a fence cut right after a thought
@given(bits=st.lists(st.sampled_from(BITS), max_size=30), cuts=st.lists(st.integers(1, 4), max_size=60))
def test_C42_any_split_gives_the_same_halves(bits: list[str], cuts: list[int]) -> None:
    text = "".join(bits)
    parts, at = [], 0
    for cut in cuts:
        parts.append(text[at : at + cut])
        at += cut
    parts.append(text[at:])
    assert pieces(text, parts) == split_thoughts(text)


def test_a_tilde_within_a_line_is_plain() -> None:
    filter_ = ThinkFilter()
    filter_.feed("It is in ")
    assert filter_.feed_plain("~/notes, ~5 of them") == "~/notes, ~5 of them"
    assert filter_.feed_plain("~") is None, "it may be the beginning of a fence"
    assert filter_.feed_plain("~~~\n") is None


@given(bits=st.lists(st.sampled_from([*BITS, "a word", " and more\n", "~5", "~/notes"]), max_size=30))
def test_a_plain_piece_is_what_any_piece_is(bits: list[str]) -> None:
    quick, usual = ThinkFilter(), ThinkFilter()
    for bit in bits:
        before = dict(vars(quick))
        fed = usual.feed(bit)
        if (plain := quick.feed_plain(bit)) is not None:
            assert Filtered(plain, "") == fed
        else:
            assert vars(quick) == before, "nothing was taken"
            assert quick.feed(bit) == fed
        assert vars(quick) == vars(usual)


@given(bits=st.lists(st.sampled_from(BITS), max_size=30))
def test_nothing_is_lost_but_tags_and_blanks(bits: list[str]) -> None:
    text = "".join(bits)
    halves = "".join(split_thoughts(text))
    for character in "`~":  # they stand in no tag
        assert halves.count(character) == text.count(character)


@pytest.mark.parametrize("where", ["a", "A sentence with <think> ", "```\n", "<think>a</think>"])
def test_L140_time_is_linear_in_the_text_however_it_comes(where: str) -> None:
    """Counted, not timed: what is held back, and so looked at again, is bounded."""
    filter_ = ThinkFilter()
    filter_.feed(where)
    for piece in ["<", "t", "h", "i", "n", "k", *[" "] * 2_000, *["x"] * 2_000, *["\n", " "] * 1_000]:
        filter_.feed(piece)
        assert sum(len(value) for value in vars(filter_).values() if isinstance(value, str)) < 600


def test_configured_tags_replace_the_defaults() -> None:
    assert split_thoughts("<plan>p</plan><think>t</think>", ["plan"]) == Filtered("<think>t</think>", "p")


def test_plain_text_is_never_held_back() -> None:
    filter_ = ThinkFilter()
    for word in ("Hello", " world", ", a ", "< b"):
        assert filter_.feed(word) == Filtered(word, "")


@pytest.mark.parametrize("character", ["`", "~", "<"])
def test_L140_time_is_linear_in_a_run_of_one_character(character: str) -> None:
    def seconds(length: int) -> float:
        filter_, start = ThinkFilter(), time.thread_time()
        shown = [filter_.feed(piece).shown for piece in ["x", *[character] * length]]
        assert "".join(shown) + filter_.close().shown == "x" + character * length
        return time.thread_time() - start

    small = min(seconds(1_000) for _ in range(3))
    assert min(seconds(20_000) for _ in range(3)) < 100 * small  # a quadratic filter takes 400 times as long
