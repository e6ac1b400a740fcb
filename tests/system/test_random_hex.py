"""Ids that nobody may guess: never the same twice, not in a forked process either."""

from __future__ import annotations

import os

from tailrace.system.random_hex import random_hex


def test_no_two_are_the_same() -> None:
    made = [random_hex(24) for _ in range(1000)]
    assert len(set(made)) == 1000
    assert all(len(text) == 24 and int(text, 16) >= 0 for text in made)
    assert [len(random_hex(digits)) for digits in (2, 10, 24)] == [2, 10, 24]


def test_a_forked_process_makes_ids_of_its_own() -> None:
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
