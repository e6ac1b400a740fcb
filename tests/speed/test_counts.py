"""What a request, a token, a commit and a viewer cost, counted in function calls, memory and cycles: no clock.

A real `tailrace serve` is counted while its provider and its clients go in lock step. `python -m bench counts --write`
prints the table of ceilings anew and stores the profile that names what grew.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from types import FunctionType

import pytest
from bench.counts.cases import CHAT, CHAT_PATH, Count, Counted, count_all, counted_server, tokens
from bench.counts.compare import Ceiling, all_growth, ceilings_to_paste, growth, stored_profile

AGAIN = 2  # a busy machine has more timers fire: what has grown has grown in each count
SUSPENDS = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
CEILINGS = {
    "request": Ceiling(680.0, slack=68.0),  # calls per request of one token
    "request cycles": Ceiling(0.0, slack=2.0),  # objects in cycles per request
    "request kept": Ceiling(0.0, slack=20.0),  # blocks kept per request that has ended
    "stored request": Ceiling(1220.0, slack=122.0),  # calls per request of one token
    "stored request cycles": Ceiling(0.0, slack=2.0),  # objects in cycles per request
    "stored request kept": Ceiling(0.8, slack=20.0),  # blocks kept per request that has ended
    "agent request": Ceiling(1460.0, slack=146.0),  # calls per request of one token
    "agent request cycles": Ceiling(0.0, slack=2.0),  # objects in cycles per request
    "agent request kept": Ceiling(0.0, slack=20.0),  # blocks kept per request that has ended
    "connection": Ceiling(657.0, slack=65.7),  # calls per connection with a request of one token
    "connection cycles": Ceiling(0.0, slack=2.0),  # objects in cycles per connection
    "left cycles": Ceiling(0.0, slack=2.0),  # objects in cycles per stream that its client leaves
    "refused request cycles": Ceiling(0.0, slack=2.0),  # objects in cycles per refused request
    "refused stored request cycles": Ceiling(0.0, slack=2.0),  # objects in cycles per refused request
    "refused agent request cycles": Ceiling(0.0, slack=2.0),  # objects in cycles per refused request
    "token": Ceiling(13.0, slack=0.5),  # calls per token of a raw chat stream
    "keyed token": Ceiling(14.0, slack=0.5),  # calls per token of a provider with a key
    "committed": Ceiling(108.7, slack=21.7),  # calls per token of a stored response, committed
    "agent token": Ceiling(124.7, slack=24.9),  # calls per token of an agent turn with a viewer
    "viewer": Ceiling(7.0, slack=2.4),  # calls per further viewer and token: a difference, and not steady under load
    "idle": Ceiling(252.0, slack=25.2),  # blocks held per open stream
}


@pytest.fixture(scope="module")
def counts() -> Iterator[list[Count]]:
    with counted_server() as server:
        counted = count_all(server)
        for _ in range(AGAIN):
            if not all_growth(counted, CEILINGS, {}):
                break
            counted = [
                min(pair, key=lambda count: count.value) for pair in zip(counted, count_all(server), strict=True)
            ]
        yield counted


def test_nothing_costs_more_than_it_did(counts: list[Count]) -> None:
    grown = all_growth(counts, CEILINGS, stored_profile())
    assert not grown, "\n" + "\n".join(grown)


def test_one_call_more_per_token_is_growth(counts: list[Count]) -> None:
    [token] = [count for count in counts if count.name == "token"]
    module, class_name, method = _called_once_per_token(token)
    with counted_server("tests.speed.one_call_more", module, class_name, method) as server:
        counted = _count_tokens(server)
    line = growth(counted, CEILINGS["token"], token.profile)
    assert re.match(r"token: [\d.]+ calls per token of a raw chat stream, the ceiling is ", line), line
    assert "    +1.0 tests/speed/one_call_more:with_a_frame_more" in line.splitlines()


def _count_tokens(server: Counted) -> Count:
    return tokens(server, "token", "calls per token of a raw chat stream", CHAT_PATH, CHAT)


def _called_once_per_token(token: Count) -> tuple[str, str, str]:
    """A method of ours, to wrap it: a plain function of a class."""
    for function, calls in token.profile.items():
        path, _, name = function.partition(":")
        class_name, _, method = name.partition(".")
        if calls != 1.0 or not path.startswith("tailrace/") or not method.isidentifier():
            continue
        module = path.replace("/", ".")
        found = vars(getattr(importlib.import_module(module), class_name)).get(method)
        if isinstance(found, FunctionType) and not found.__code__.co_flags & SUSPENDS:
            return module, class_name, method
    raise AssertionError("no method of ours is called once per token")


def test_a_count_within_its_ceiling_is_no_growth() -> None:
    assert growth(Count("token", "calls", 92.4), Ceiling(92.0, slack=0.5), {}) == ""
    assert growth(Count("request", "calls", 2200.0), Ceiling(2000.0, slack=200.0), {}) == ""


def test_growth_names_the_functions_that_grew_most() -> None:
    counted = Count("request", "calls", 130.0, {"a:f": 40.0, "a:g": 30.0, "len (C)": 60.0})
    assert growth(counted, Ceiling(100.0, slack=11.0), {"a:f": 10.0, "a:g": 30.0, "len (C)": 59.0}) == (
        "request: 130.0 calls, the ceiling is 111.0\n    +30.0 a:f\n    +1.0 len (C)"
    )


def test_a_count_without_a_ceiling_and_a_ceiling_without_a_count_are_told() -> None:
    told = all_growth([Count("new", "calls", 3.0)], {"old": Ceiling(1.0, slack=0.1)}, {})
    assert told == ["old: no such count", "new: has no ceiling; it is 3.0"]


def test_the_table_to_paste_is_a_table() -> None:
    pasted = ceilings_to_paste([Count("token", "calls per token", 92.0), Count("idle", "blocks", 455.25)])
    found: dict[str, Ceiling] = eval(pasted.partition("=")[2], {"Ceiling": Ceiling})  # noqa: S307 - our own text
    assert found == {"token": Ceiling(92.0, slack=0.5), "idle": Ceiling(455.2, slack=45.5)}
