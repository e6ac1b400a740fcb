"""Values in the command of a `terminal` step are words, never shell code."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.flows.language.expressions import ExpressionError
from tailrace.flows.steps.shell_template import ALONE, fill_command, invalid_template
from tailrace.flows.steps.tool import ToolStep

BASH = shutil.which("bash") or "/bin/sh"


class Names(dict[str, Any]):
    def root(self, name: str) -> Any:
        return self[name]


async def allowed(_name: str, _effect: object) -> str:
    return ""


@given(value=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30))
def test_a_value_is_one_word_whatever_it_holds(value: str) -> None:
    command = fill_command("printf %s {{input.v}}", Names(input={"v": value}), strict=True)
    assert subprocess.check_output([BASH, "-c", command]) == value.encode()


def test_shell_code_in_a_value_is_text() -> None:
    scope = Names(input={"v": "$(id); rm -rf x", "n": 3, "l": ["a b"]})
    assert fill_command("echo {{input.v}}", scope, strict=True) == "echo '$(id); rm -rf x'"
    assert (
        fill_command("head -n {{input.n}} --file={{input.v}}", scope, strict=True)
        == "head -n 3 --file='$(id); rm -rf x'"
    )
    assert fill_command("echo {{input.l}}", scope, strict=True) == """echo '["a b"]'"""


@pytest.mark.parametrize(
    "command",
    [
        "{{input.v}}",
        " {{input.v}} x",
        'echo "{{input.v}}"',
        "echo '{{input.v}}'",
        'echo "a" "b {{input.v}}"',
        "echo `cat {{input.v}}`",
        "echo \\{{input.v}}",
        "echo ${{input.v}}",
        "ls # {{input.v}}",
        "cat <<EOF\n{{input.v}}\nEOF",
        'bash -c "rm {{input.v}}"',
        "bash -c {{input.v}}",
        "sh -ec {{input.v}}",
        "eval echo {{input.v}}",
        "python3 -c {{input.v}}",
        "ssh host {{input.v}}",
        'echo "$(cat "{{input.v}}")"',
        'echo "`cat "{{input.v}}"`"',
        'echo "${x:-"{{input.v}}"}"',
        "echo $'a\\' {{input.v}} '",
        "echo $(( {{input.v}} ))",
        "(( x = {{input.v}} ))",
        "[[ 1 -eq {{input.v}} ]]",
        "echo $[ {{input.v}} ]",
        "echo ${a[{{input.v}}]}",
        "let {{input.v}}",
        "unset {{input.v}}",
        "printf -v {{input.v}} x",
        "[ -v {{input.v}} ]",
    ],
)
def test_a_template_where_quotes_mean_something_else_is_refused(command: str) -> None:
    assert invalid_template(command)
    with pytest.raises(ExpressionError):
        fill_command(command, Names(input={"v": "x"}), strict=True)
    step = ToolStep({"terminal": None}, allowed)  # type: ignore[dict-item]
    problems = list(step.mistakes({"name": "terminal", "args": {"command": command}}))
    assert [place for place, _ in problems] == [".args.command"]


def test_what_stands_by_itself_is_fine() -> None:
    for command in (
        "ls {{input.v}}",
        "a 'b' \"c\" {{input.v}} # d",
        "x=$(cat {{input.v}}) && echo",
        "ls # it's\ncat {{input.v}}",
        'ls ${HOME} "${HOME}/x" {{input.v}}',
        "grep -v {{input.v}} x",
        "export X={{input.v}}",
        "echo time {{input.v}}",
    ):
        assert invalid_template(command) == ""


def test_a_template_does_not_choose_the_program() -> None:
    for before in ("", "true; ", "ls | ", "x=$(", "A=1 ", "if ! ", "xargs ", "env A=1 nice "):
        assert invalid_template(f"{before}{{{{input.v}}}} x") == ALONE, before


def test_a_name_that_is_a_template_brings_no_way_around() -> None:
    step = ToolStep({}, allowed)
    params = {"name": "{{input.tool}}", "args": {"command": "echo {{input.v}}", "directory": "{{input.d}}"}}
    scope = Names(input={"tool": "terminal", "v": "$(id)", "d": "sub"})
    filled = step.fill(params, scope, strict=True)
    assert filled == {"name": "terminal", "args": {"command": "echo '$(id)'", "directory": "sub"}}
    other = step.fill(params, Names(input={"tool": "web", "v": "$(id)", "d": "sub"}), strict=True)
    assert other["args"]["command"] == "echo $(id)"
    for args in ("{{input.args}}", "ls {{input.args}}"):
        whole = {"name": "terminal", "args": args}
        assert any(ToolStep({"terminal": None}, allowed).mistakes(whole))  # type: ignore[dict-item]
        with pytest.raises(ExpressionError):
            step.fill(whole, Names(input={"args": {"command": "id"}}), strict=True)
