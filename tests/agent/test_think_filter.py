from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.agent.think_filter import Filtered, ThinkFilter, split_thoughts

CASES = {
    "plain": ("Hello <b>world</b>.", "Hello <b>world</b>.", ""),
    "at the start": ("<think>hm</think>\n\nHello", "Hello", "hm"),
    "in the middle": ("A<thinking>x</thinking>B", "AB", "x"),
    "reasoning": ("<reasoning>r</reasoning>ok", "ok", "r"),
    "vendor": ("<mm:think>m</mm:think>ok", "ok", "m"),
    "upper case": ("<THINK>x</Think>ok", "ok", "x"),
    "attributes": ('<think budget="1">x</think >ok', "ok", "x"),
    "nested": ("<think>a<think>b</think>c</think>d", "d", "abc"),
    "other tag inside": ("<think>a<reasoning>b</think>c", "c", "a<reasoning>b"),
    "C43 unclosed": ("Yes. <think>never shown", "Yes. ", "never shown"),
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
    "leading blanks are kept when a word follows none": ("\n\n", "", ""),
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


BITS = ["<think>", "</think>", "<", ">", "`", "```", "~~~", "\n", " ", "a", "think", "/", "<mm:think>", "</mm:think>"]


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


def test_a_thought_that_the_prompt_opened() -> None:
    filter_ = ThinkFilter(starts_inside=True)
    assert filter_.feed("first I </thi") == Filtered("", "first I ")
    assert filter_.feed("nk>\nHello") == Filtered("Hello", "")


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
