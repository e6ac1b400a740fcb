from __future__ import annotations

import asyncio
import cProfile
import time
from pathlib import Path

import msgspec
import pytest

from tailrace.agent.safety.approval import (
    LEAST_S,
    MAX_EARLY,
    ApprovalMemory,
    ApprovalPolicy,
    ApprovalScope,
    Asker,
    digest_of,
    escaped,
)
from tailrace.agent.safety.judge import check_patterns
from tailrace.events import ApprovalAnswered, ApprovalAsked
from tailrace.ports import Effect
from tailrace.runs.approval_words import NO_SURFACE, TIMED_OUT
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
    asked = ApprovalAsked("a1", "terminal", judgement.text, judgement.digest)
    await policy.remember(asked, ApprovalAnswered("a1", "once"))
    assert (await policy.judge("terminal", RM)).verdict == "ask"
    await policy.remember(asked, ApprovalAnswered("a1", "session"))
    assert (await policy.judge("terminal", RM)).verdict == "allow"
    assert (await policy.judge("terminal", Effect("command", "rm -rf  build"))).verdict == "ask"
    assert (await policy.judge("other", RM)).verdict == "ask"
    assert memory.digests == {digest_of("terminal", RM, str(Path.cwd()), "")}


async def test_M152_an_approval_is_bound_to_its_directory_and_its_requester(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    memory = ApprovalMemory()

    async def verdict(effect: Effect, directory: str = "", requester: str = "ann") -> str:
        scope = ApprovalScope(requester, str(tmp_path / directory), "s")
        return (await ApprovalPolicy(memory=memory, scope=scope).judge("terminal", effect)).verdict

    in_a = Effect("command", "rm -rf build", "a")
    policy = ApprovalPolicy(memory=memory, scope=ApprovalScope("ann", str(tmp_path), "s"))
    judgement = await policy.judge("terminal", in_a)
    assert (judgement.text, judgement.directory, judgement.session) == ("rm -rf build", str(tmp_path / "a"), "s")
    asked = ApprovalAsked("a1", "terminal", judgement.text, judgement.digest, "ann")
    await policy.remember(asked, ApprovalAnswered("a1", "always", "ann"))
    assert await verdict(in_a) == "allow"
    assert await verdict(RM, "a") == "allow", "the same directory, named otherwise"
    assert await verdict(RM) == "ask"
    assert await verdict(Effect("command", "rm -rf build", "b")) == "ask"
    assert await verdict(in_a, "b") == "ask"
    assert await verdict(in_a, requester="bob") == "ask"
    (tmp_path / "a").rename(tmp_path / "old")
    (tmp_path / "a").symlink_to(tmp_path / "b")
    assert await verdict(in_a) == "ask", "the link leads to another directory"


async def test_a_place_outside_asks_also_behind_a_link(tmp_path: Path) -> None:
    for name in ("work/sub", "root", "other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "work" / "out").symlink_to(tmp_path / "other")
    (tmp_path / "work" / "in").symlink_to(tmp_path / "work" / "sub")
    (tmp_path / "linked-root").symlink_to(tmp_path / "root")
    scope = ApprovalScope("ann", str(tmp_path / "work"), "s", (str(tmp_path / "linked-root"),))

    async def verdict(line: str, directory: str = "") -> str:
        return (await ApprovalPolicy(scope=scope).judge("terminal", Effect("command", line, directory))).verdict

    assert await verdict("cat in/x > sub/y") == "allow"
    assert await verdict(f"cat {tmp_path}/root/x") == "allow"
    assert await verdict("ls", "sub") == "allow"
    for line in ("cat out/x", "cat out/*", "echo x > out/y", "cd out && ls", f"cat {tmp_path}/other/x"):
        assert await verdict(line) == "ask", line
    assert await verdict("ls", "../other") == "ask"
    assert await verdict("ls", "out") == "ask"


def test_M152_no_part_of_what_is_approved_can_pass_for_another() -> None:
    effects = [("t", Effect("command", "a", "b"), "c", "d"), ("t", Effect("command", "ab"), "", "cd")]
    assert len({digest_of(*effect) for effect in effects}) == 2


async def test_M152_the_question_shows_what_the_approval_is_bound_to() -> None:
    asked = ApprovalAsked("a1", "terminal", "rm x", "d", "telegram:1", directory="/srv/a", session="s1")
    assert asked.scope == "in /srv/a, for telegram:1, session s1"
    scope = ApprovalScope("ann", "/srv/a\u202e\nb", "s")
    assert (await ApprovalPolicy(scope=scope).judge("terminal", RM)).directory == "/srv/a\\u{202e}\\nb"


ALLOW = ["rm -rf build*", "git push --force origin *", "rm -rf 'my dir'", "npm uninstall *"]


@pytest.mark.parametrize(
    "line",
    [
        "rm -rf build",
        "rm  -rf 'build'",
        "rm -rf build-2",
        "rm -rf build/x",
        "rm -rf build*",
        "git push --force origin topic",
        'rm -rf "my dir"',
        "npm uninstall left-pad",
        "( rm -rf build )",
        "! rm -rf build",
        "x=1; rm -rf build",
        "cd sub && rm -rf build 2>&1 | tail -5",
        "make test; rm -rf build",
    ],
)
async def test_an_allowed_pattern_adds_one_command_to_the_known_ones(line: str) -> None:
    assert (await ApprovalPolicy(allow=ALLOW).judge("terminal", Effect("command", line))).verdict == "allow"


@pytest.mark.parametrize(
    "line",
    [
        "rm -rf build ~/Documents",
        "rm -rf build src",
        "rm -rf build/../../x",
        "rm -rf build/..",
        "rm -rf build # \\\nrm -rf y",
        "rm -rf build\nrm -rf y",
        "rm -rf build; rm -rf src",
        "rm -rf build && curl x | sh",
        "rm -rf build & rm -rf src",
        "rm -rf build$(x)",
        "rm -rf build`x`",
        "rm -rf build$x",
        "rm -rf build > /etc/x",
        "rm -rf build{,/../src}",
        "rm -rf build*/x",
        "rm -rf b*",
        "rm -rf 'build'\\ ../x",
        "cd .. && rm -rf build",
        "rm -rf build || frobnicate",
        "env rm -rf build",
        "PATH=. rm -rf build",
        "X=1 rm -rf build",
        "sudo rm -rf build",
        "git push --force origin",
        "git push --force origin a b",
        "git push --force origin --mirror",
        "npm uninstall --global",
    ],
)
async def test_M152_an_allowed_pattern_speaks_of_nothing_else(line: str) -> None:
    assert (await ApprovalPolicy(allow=ALLOW).judge("terminal", Effect("command", line))).verdict == "ask"


@pytest.mark.parametrize("pattern", ["", " ", "rm 'x", "make && rm -rf x", "rm -rf $x", "rm x # y"])
def test_a_pattern_that_matches_nothing_is_named(pattern: str) -> None:
    check_patterns(ALLOW)
    with pytest.raises(ValueError, match="words"):
        check_patterns([pattern])


def test_J111_nothing_is_hidden_from_who_approves() -> None:
    shown = escaped("rm x \u202e\u200b\x1b[2K\r\x00 ok\n\tend")
    assert shown == "rm x \\u{202e}\\u{200b}\\u{1b}[2K\\u{d}\\u{0} ok\n\tend"


async def test_J108_nobody_to_ask_means_no() -> None:
    with Asker("ann", reachable=False).expecting(ASKED) as answer:
        assert await answer() == ApprovalAnswered("a1", "deny", NO_SURFACE)


@driven
async def test_J108_no_answer_in_time_means_no() -> None:
    with Asker("ann", timeout_s=60).expecting(ASKED) as answer:
        assert await answer() == ApprovalAnswered("a1", "deny", TIMED_OUT)


@driven
@pytest.mark.parametrize(("left_s", "waits_s"), [(40.0, 40.0), (900.0, 60.0), (-300.0, LEAST_S)])
async def test_I106_a_question_keeps_its_time_when_its_run_is_taken_over(left_s: float, waits_s: float) -> None:
    """A clock that was set back makes it no longer than a new question. What is past still lets an answer arrive."""
    now, loop = time.time(), asyncio.get_running_loop()
    asked = msgspec.structs.replace(ASKED, asked_at=now - 20, expires_at=now + left_s)
    began = loop.time()
    with Asker("ann", timeout_s=60).expecting(asked) as answer:
        assert (await answer()).by == TIMED_OUT
    assert loop.time() - began == pytest.approx(waits_s, abs=1)


async def test_J110_only_the_requester_answers_and_only_once() -> None:
    asker = Asker("ann")
    with asker.expecting(ASKED) as answer:
        assert not asker.answer(ApprovalAnswered("a1", "once", "mallory"))
        assert not asker.answer(ApprovalAnswered("a2", "once", "ann"))
        assert asker.answer(ApprovalAnswered("a1", "once", "ann"))
        assert not asker.answer(ApprovalAnswered("a1", "deny", "ann"))
        assert await asyncio.wait_for(answer(), 30) == ApprovalAnswered("a1", "once", "ann")
    assert not asker.answer(ApprovalAnswered("a1", "once", "ann"))


def test_answers_to_questions_that_are_never_put_are_not_kept_for_ever() -> None:
    asker = Asker("me")
    for number in range(10 * MAX_EARLY):
        assert not asker.answer(ApprovalAnswered(f"apr_{number}", "once", "me"))
    assert len(asker._early) == MAX_EARLY
    assert f"apr_{10 * MAX_EARLY - 1}" in asker._early


def test_O177_a_long_text_is_escaped_in_c() -> None:
    def calls(text: str) -> int:
        profile = cProfile.Profile()
        profile.runcall(escaped, text)
        return sum(entry.callcount for entry in profile.getstats())

    assert escaped("a\u202eb\n\x1b\té") == "a\\u{202e}b\n\\u{1b}\té"
    assert calls("a\u202e\n" * 20_000) == calls("a\u202e\n" * 10_000) < 20
