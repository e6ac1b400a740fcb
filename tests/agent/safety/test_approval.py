from __future__ import annotations

import asyncio

from tailrace.agent.safety.approval import (
    MAX_EARLY,
    NO_SURFACE,
    TIMED_OUT,
    ApprovalMemory,
    ApprovalPolicy,
    Asker,
    digest_of,
    escaped,
)
from tailrace.events import ApprovalAsked
from tailrace.ports import Effect
from tailrace.testing.clock import driven

RM = Effect("command", "rm -rf build")
ASKED = ApprovalAsked("a1", "terminal", "rm -rf build", "d", "ann")


async def test_what_asks_and_what_does_not() -> None:
    policy = ApprovalPolicy()
    assert (await policy.judge("read_file", Effect())).verdict == "allow"
    assert (await policy.judge("write_file", Effect("write", "x"))).verdict == "allow"
    assert (await policy.judge("terminal", Effect("command", "ls"))).verdict == "allow"
    assert (await policy.judge("terminal", RM)).verdict == "ask"
    assert (await policy.judge("mcp__post", Effect("external", "{}"))).verdict == "ask"


async def test_modes_decide_what_would_ask_and_never_what_is_refused() -> None:
    hard = Effect("command", "rm -rf /")
    for mode, verdict in (("ask", "ask"), ("deny", "refuse"), ("yolo", "allow")):
        policy = ApprovalPolicy(mode)  # type: ignore[arg-type]
        assert (await policy.judge("terminal", RM)).verdict == verdict
        assert (await policy.judge("terminal", hard)).verdict == "refuse"


async def test_J111_an_approval_holds_for_exactly_what_was_shown() -> None:
    memory = ApprovalMemory()
    policy = ApprovalPolicy(memory=memory)
    judgement = await policy.judge("terminal", RM)
    await policy.remember(judgement, "once")
    assert (await policy.judge("terminal", RM)).verdict == "ask"
    await policy.remember(judgement, "session")
    assert (await policy.judge("terminal", RM)).verdict == "allow"
    assert (await policy.judge("terminal", Effect("command", "rm -rf  build"))).verdict == "ask"
    assert (await policy.judge("other", RM)).verdict == "ask"
    assert memory.digests == {digest_of("terminal", RM)}


async def test_an_allowed_pattern_speaks_of_one_command_alone() -> None:
    policy = ApprovalPolicy(allow=["rm -rf build*", "git push --force*"])
    for line in ("rm -rf build", "rm  -rf 'build'", "git push --force origin"):
        assert (await policy.judge("terminal", Effect("command", line))).verdict == "allow"
    for line in (
        "rm -rf build; rm -rf src",
        "rm -rf build && curl x | sh",
        "rm -rf build$(x)",
        "rm -rf build > /etc/x",
    ):
        assert (await policy.judge("terminal", Effect("command", line))).verdict == "ask"


def test_J111_nothing_is_hidden_from_who_approves() -> None:
    shown = escaped("rm x \u202e\u200b\x1b[2K\r\x00 ok\n\tend")
    assert shown == "rm x \\u{202e}\\u{200b}\\u{1b}[2K\\u{d}\\u{0} ok\n\tend"


async def test_J108_nobody_to_ask_means_no() -> None:
    with Asker("ann", reachable=False).expecting(ASKED) as answer:
        assert await answer() == ("deny", NO_SURFACE)


@driven
async def test_J108_no_answer_in_time_means_no() -> None:
    with Asker("ann", timeout_s=60).expecting(ASKED) as answer:
        assert await answer() == ("deny", TIMED_OUT)


async def test_J110_only_the_requester_answers_and_only_once() -> None:
    asker = Asker("ann")
    with asker.expecting(ASKED) as answer:
        assert not asker.answer("a1", "once", "mallory")
        assert not asker.answer("a2", "once", "ann")
        assert asker.answer("a1", "once", "ann")
        assert not asker.answer("a1", "deny", "ann")
        assert await asyncio.wait_for(answer(), 1) == ("once", "ann")
    assert not asker.answer("a1", "once", "ann")


def test_answers_to_questions_that_are_never_put_are_not_kept_for_ever() -> None:
    asker = Asker("me")
    for number in range(10 * MAX_EARLY):
        assert not asker.answer(f"apr_{number}", "once", by="me")
    assert len(asker._early) == MAX_EARLY
    assert f"apr_{10 * MAX_EARLY - 1}" in asker._early
