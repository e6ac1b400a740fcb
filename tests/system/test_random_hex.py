"""Ids that nobody may guess: never the same twice, not in a forked process either."""

from __future__ import annotations

import os

import pytest

from tailrace.system.random_hex import random_hex


def test_no_two_are_the_same() -> None:
    made = [random_hex(24) for _ in range(1000)]
    assert len(set(made)) == 1000
    assert all(len(text) == 24 and int(text, 16) >= 0 for text in made)
    assert [len(random_hex(digits)) for digits in (1, 10, 24)] == [1, 10, 24]


@pytest.mark.parametrize("digits", [0, 25])
def test_a_length_that_is_not_there_is_refused(digits: int) -> None:
    with pytest.raises(ValueError, match="digits"):
        random_hex(digits)


def test_a_forked_process_makes_ids_of_its_own() -> None:
    random_hex(24)  # a block is there
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writing, random_hex(24).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        theirs = pipe.read()
    os.waitpid(child, 0)
    assert len(theirs) == 24
    assert theirs != random_hex(24)
