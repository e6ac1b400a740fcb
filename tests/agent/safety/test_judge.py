"""Lines that must be refused, must ask, or must run at once. The lists are the specification."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.agent.safety.judge import Verdict, assess
from tailrace.agent.safety.places import Places

CORPUS = Path(__file__).parent / "corpus"


def lines(name: str) -> list[str]:
    """The command lines of a file, one per line; ⏎ stands for a line end within one."""
    text = (CORPUS / name).read_text(encoding="utf-8")
    return [line.replace("⏎", "\n") for line in text.split("\n") if line]


@pytest.mark.parametrize(("name", "verdict"), [("refuse.txt", "refuse"), ("ask.txt", "ask"), ("run.txt", "allow")])
def test_J109_every_spelling_is_seen_for_what_it_does(name: str, verdict: str) -> None:
    wrong = {line: assess(line) for line in lines(name) if assess(line).verdict != verdict}
    assert wrong == {}


def test_the_lists_are_long_enough() -> None:
    every = [line for name in ("refuse.txt", "ask.txt", "run.txt") for line in lines(name)]
    assert len(set(every)) == len(every)
    assert len(lines("ask.txt")) >= 2500
    assert len(lines("run.txt")) >= 600


@pytest.mark.parametrize(
    "wrapper", ["{}", "true; {}", "({})", "bash -c '{}'", "sudo {}", "x=1 {}", "echo `{}`", "{} &"]
)
def test_J109_no_wrapper_makes_a_command_harmless(wrapper: str) -> None:
    for line in ("rm -rf build", "git push --force", "kill 12", "systemctl stop x"):
        assert assess(wrapper.format(line)).verdict != "allow"


IN_PROJECT = Places(("/home/ann/proj",), ("/home/ann/proj", "/srv/data"), "/home/ann")


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("cd /home/ann/proj && pytest -q > out.log 2>&1", "allow"),
        ("cd /home/ann/proj/sub && cat > a.txt <<'E'\nhi\nE", "allow"),
        ("echo hi > ~/proj/x", "allow"),
        ("cat a > /srv/data/b", "allow"),
        ("cat /srv/data/b /home/ann/proj/c", "allow"),
        ("cat /srv/database", "ask"),
        ("cd sub && echo x > ../y", "ask"),  # where there is no sub, it is outside
        ("cd /home/ann/proj/sub/deep && cd .. && echo x > y", "ask"),
        ("echo hi > ~/other/x", "ask"),
        ("echo hi > ../x", "ask"),
        ("cd .. && touch x", "ask"),
        ("rm -rf ../../ann", "refuse"),
        ("cd .. && rm -rf *", "refuse"),
        ("rm -rf /home/ann/proj/../", "refuse"),
        ("rm -rf ../proj", "ask"),
    ],
)
def test_M153_a_path_is_judged_from_the_directory_in_which_it_is_used(line: str, verdict: Verdict) -> None:
    assert assess(line, IN_PROJECT).verdict == verdict


HERE_DOCUMENTS: dict[Verdict, list[str]] = {
    "allow": [
        "cat > notes.md <<'EOF'\nrm -rf /\nEOF",
        "cat > notes.md <<'EOF'\n$(rm -rf /) `sudo reboot`\nEOF\nls",
        "cat > notes.md <<EOF\nsudo reboot $x\nEOF\n",
        "cat > bomb.md <<'EOF'\n:(){ :|:& };:\nEOF",
        "cat <<EOF; ls\nrm -rf /\nEOF\n",
        "cat <<-'EOF'\n\trm -rf /\n\tEOF\nls",
        "bash -c 'cat <<EOF\nrm -rf /\nEOF\n'",
        'echo "$(cat <<\'EOF\'\nStop `rm -rf /` (really)\n\nIt\'s "done"; sudo reboot\nEOF\n)"',
        "if [ -f x ]; then cat <<'EOF'\nrm -rf /\nEOF\nfi",
        "for f in a b; do cat > $f <<EOF\nx\nEOF\ndone",
    ],
    "ask": [
        "python3 script.py <<'EOF'\nshutil.rmtree\nEOF",
        "psql <<'EOF'\nSELECT 1;\nEOF",
        "git commit -m \"$(cat <<'EOF'\nStop `rm -rf /` (really)\nEOF\n)\"",
        "python3 <<'EOF'\nimport shutil\nshutil.rmtree('/')\nEOF",
        "python3 - a b <<'EOF'\nprint(1)\nEOF",
        "node <<EOF\nx\nEOF",
        "sudo -u ann bash <<'EOF'\nls\nEOF",
        "env - bash <<EOF\nls\nEOF",
        "cat <<'EOF' | tee x | python3\nls\nEOF",
        "(bash) <<'EOF'\nls\nEOF",
        "cat > /etc/passwd <<'EOF'\nx\nEOF\n",
        "cat <<'EOF' > /etc/passwd\nx\nEOF\n",
        "cat > x <<EOF\n$(rm -rf build)\nEOF\n",
        "psql <<'EOF'\nDROP TABLE x;\nEOF",
        "cat <<'EOF'\nnever closed",
        "cat <<A <<B\na\nA\nb\nB\n",
        "cat <<EOF\nx\\\nEOF\nls\nEOF",  # the backslash joins the first EOF to the line before it
        "x=$(cat <<'EOF'\nls\nEOF)\nls\nEOF\n",
    ],
    "refuse": [
        "cat <<'EOF' > x && rm -rf /\nx\nEOF\n",
        "cat <<EOF; rm -rf /\nx\nEOF\n",
        "cat <<EOF; ls\nx\nEOF\nrm -rf /\nEOF;\n",
        "cat <<'EOF'\nEOFX\nEOF\nrm -rf /\n",
        "cat <<-EOF\n\tx\n\tEOF\nrm -rf /",
        "bash -c 'cat <<EOF\nx\nEOF\nrm -rf /'",
        'cat <<EOF "a\nb" c\nEOF\nrm -rf / #"',
    ],
}


UNCLEAR_AND_REFUSED = [
    "bash <<EOF\nrm -rf /\nEOF",
    "bash <<< 'rm -rf /'",
    "bash <<EOF\nrm -rf /",  # bash ends the document where the line ends
    "bash <<EOF # x\nrm -rf /\nEOF",
    "x=/; bash <<EOF\nrm -rf $x\nEOF",
    "cat <<EOF | sh\nrm -rf /\nEOF",
    "cat <<EOF | tee x | sh\nrm -rf /\nEOF",
    "{ bash; ls; } <<EOF\nrm -rf /\nEOF",
    "sudo -s <<EOF\nrm -rf /\nEOF",
    "bash -c sh <<EOF\nrm -rf /\nEOF",
    "bash -c \"$(cat <<'EOF'\nrm -rf /\nEOF\n)\"",
    "bash <(cat <<EOF\nrm -rf /\nEOF\n)",
    "cat <<EOF\n$(rm -rf /)\nEOF",
    "cat <<EOF\nIt's `rm -rf /`\nEOF",
    "cat > notes.md <<EOF\n$(rm -rf /)\nEOF",
    'rm -rf / ; echo "\\ x"',
    "rm -rf /\r",
    "cat <<EOF\r\nx\r\nEOF\r\nrm -rf /",
    "ls\n\\rm -rf /",
    "rm\u00a0-rf\u00a0/",
    "rm -rf / " + "a" * 20_000,
    "rm -rf /;x=" + "a" * 20_000,
    "rm -rf /; echo '" + "a " * 10_000 + "'",
    "bash -c 'rm -rf /; " + "ls; " * 10_000 + "'",
    "rm -rf /\n" + "(ls) | cat\n" * 300,
]


def test_M153_a_line_that_cannot_be_read_in_full_is_refused_for_what_can_be_read() -> None:
    assert {line[:80]: assess(line) for line in UNCLEAR_AND_REFUSED if assess(line).verdict != "refuse"} == {}


@pytest.mark.parametrize(
    "variant", ["{}\r", '{} ; echo "\\ x"', "bash <<EOF\n{}\nEOF", "\u00a0{}", "cat <<EOF | sh\n{}\nEOF"]
)
def test_M153_no_variant_of_a_refused_line_is_only_asked_about(variant: str) -> None:
    variants = [variant.format(line) for line in lines("refuse.txt")]
    assert [line for line in variants if assess(line).verdict != "refuse"] == []


@pytest.mark.parametrize(
    "line",
    [
        "cat > notes.md <<EOF\n\\`rm -rf /\\`\nEOF",
        'rm -rf "$HOME"\\ x',
        "echo '" + "rm -rf /\n" * 3000 + "'",
        "rm -rf /" + "tmp/x" * 4000,
    ],
)
def test_M153_text_and_half_words_are_no_reason_to_refuse(line: str) -> None:
    assert assess(line).verdict == "ask"


@pytest.mark.parametrize("verdict", ["allow", "ask", "refuse"])
def test_M153_a_here_document_is_text_and_a_program_for_an_interpreter(verdict: Verdict) -> None:
    wrong = {line: assess(line) for line in HERE_DOCUMENTS[verdict] if assess(line).verdict != verdict}
    assert wrong == {}


@pytest.mark.parametrize(
    "line",
    [
        "# a comment ends with its line \\\nrm -rf build",
        "r\\\nm -rf build",
        "echo a\\\\\nrm -rf build",
        "ls \\\r\nrm -rf build",  # bash escapes the carriage return, not the line end
        "x=\rls rm -rf build",
        "x=\u00a0ls rm -rf build",
        "ls\n\\rm -rf build",
        "ls\n\\\nrm -rf build",
        "m$'a'\\ x; rm -rf build",
        "ls\0; rm -rf build",
        'x=a$"b" rm -rf build',
        "! x=1 rm -rf build",
        'echo "unclosed; rm -rf build',
        "2>{&rm -rf build",
    ],
)
def test_M153_where_the_grammar_differs_from_bash_it_asks(line: str) -> None:
    assert assess(line).verdict != "allow"


HOSTILE = [
    *["(", ")", "$(", "{", "{a,", "{a,b}", "${x:-", "`", "'", "a=(", "[[(", "a(", "a(){", "a|"],
    '"',
    *("{ ", '"a" ', "<<A ", "<<A\n", "[[ ( ", "a | ", "\n", "a && ", "if ", "case x in a) ", "a=$a$a;"),
    *("sudo ", "sudo sudo ls; ", "env -Q ", "nice nice ls; ", "cd a; ", "x=1; eval a; ", "find . -exec ", "s/a/b/;"),
    *("sed 's/a/b/;s/[/]/c/' x; ", "awk 'print|' x; ", "psql -c 'copy ' ; ", "for x in a; do ", "f() { f & "),
    *("eval 'eval ls'; ", "bash -c 'ls;ls'; ", "cat <<'A'\nx\nA\n"),
]


@pytest.mark.parametrize("unit", HOSTILE)
def test_L140_the_cost_of_a_hostile_line_is_linear(unit: str) -> None:
    def cost(length: int) -> int:
        calls = 0

        def count(_frame: object, _event: str, _argument: object) -> None:
            nonlocal calls
            calls += 1

        sys.setprofile(count)
        try:
            assess(unit * (length // len(unit)))
        finally:
            sys.setprofile(None)
        return calls

    assess("ls")
    assert cost(8000) < 2.5 * max(cost(4000), 2000)
    assert cost(400_000) < 500_000  # past the bounds it is not read


@pytest.mark.parametrize(
    "line", ["awk '{}'", "sed '{}'", "psql -c '{}'", "perl -e '{}'", "python3 -c '{}'", "git -c {} log", "rm {}"]
)
@pytest.mark.parametrize("unit", ["print ", "s/[/", "/\\", "copy ", "a.", "(", "\\1 ", "~/../", "drop  "])
def test_L140_the_cost_of_code_in_another_language_is_linear(line: str, unit: str) -> None:
    """Counted in processor time: a regular expression is one call."""

    def cost(count: int) -> float:
        text = line.format(unit * count)
        began = time.process_time()
        assess(text)
        return time.process_time() - began

    few = min(cost(15_000 // len(unit) // 4) for _ in range(3))
    assert min(cost(15_000 // len(unit)) for _ in range(3)) < 12 * few + 0.05


def test_L140_a_line_past_the_bounds_is_asked_about() -> None:
    for line in ("echo " + "a" * 20_000, "echo " + "{a,b}" * 40, "ls " + "(" * 600, "echo " + "$(" * 60 + ")" * 60):
        assert assess(line).verdict == "ask"


@given(st.text(max_size=200))
def test_any_text_is_assessed_without_a_crash(text: str) -> None:
    assert assess(text).verdict in ("allow", "ask", "refuse")


def test_a_line_that_crashed_the_scanner_of_the_grammar_is_assessed() -> None:
    line = "\x02\u0123|\ua45a\U00084c78EOF({\U0008a997=~\u0338<<}!]]\\\uc0f0\u20a2"
    assert {assess(line).verdict for _ in range(20)} == {"ask"}


@given(
    st.lists(st.sampled_from(["rm", "-rf", "/", "'", '"', "$(", ")", "`", "\\", " ", ";", "|", "{", "}", "<(", "${"]))
)
def test_J109_broken_quoting_is_assessed_without_a_crash(pieces: list[str]) -> None:
    assert assess("".join(pieces)).verdict in ("allow", "ask", "refuse")


def test_the_grammar_is_imported_with_the_first_line_only() -> None:
    code = "import sys, tailrace, tailrace.agent.safety.approval; print('tree_sitter' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"
