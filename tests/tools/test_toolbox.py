"""Which tools `agent.tools` may name, and what every one of them has in common."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Literal

import pytest

from tailrace.config.sections import AgentSettings
from tailrace.errors import ConfigError
from tailrace.messages import Dialect, JsonObject, ModelRequest, user
from tailrace.tools.toolbox import BUILTIN, builtin_tools
from tailrace.tools.typed import Arguments, invalid_arguments, preview_of
from tailrace.wire.dialects import DIALECTS


def test_the_tools_of_the_default_config_are_those_there_are() -> None:
    assert tuple(BUILTIN) == AgentSettings().tools
    tools = builtin_tools(AgentSettings().tools, environment={})
    assert [tool.spec.name for tool in tools.values()] == list(tools) == list(BUILTIN)


def test_only_what_is_named_in_its_order() -> None:
    assert list(builtin_tools(["patch", "read_file"], environment={})) == ["patch", "read_file"]
    assert builtin_tools([], environment={}) == {}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("termnal", "did you mean terminal?"),
        ("readfile", "did you mean read_file?"),
        ("quux", "there are: terminal, read_file, write_file, patch, search_files, web_fetch"),
    ],
)
def test_a_name_that_is_none_is_a_mistake_in_the_config(name: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        builtin_tools(["patch", name], environment={})
    assert str(caught.value) == f"agent.tools: there is no tool named '{name}'; {hint}"


class Gate(Arguments):
    """Arguments with a choice, one of them optional."""

    height: Literal["low", "high"]
    side: Literal["left", "right"] | None = None


def test_a_value_that_is_none_of_a_field_s_is_told_which_there_are() -> None:
    high = "height: must be one of high, low, not 'up'"
    assert invalid_arguments({"height": "up"}, Gate) == f"Invalid arguments: {high}"
    side = "side: must be one of left, right, not 'up'"
    assert invalid_arguments({"height": "low", "side": "up"}, Gate) == f"Invalid arguments: {side}"
    assert invalid_arguments({"height": "low", "side": None}, Gate) == ""


@pytest.mark.parametrize("name", BUILTIN)
def test_every_tool_refuses_arguments_that_are_not_its_own(name: str) -> None:
    tool = builtin_tools([name], environment={})[name]
    schema = tool.spec.parameters
    assert schema["type"] == "object"
    assert "$ref" not in json.dumps(schema)
    assert tool.spec.description
    assert all("description" in field or "default" in field for field in schema["properties"].values())
    assert tool.invalid({}) == f"Invalid arguments: {schema['required'][0]}: is missing"
    assert tool.invalid(dict.fromkeys(schema["required"]))
    tool.effect({})  # whatever the model sends, nothing is raised
    tool.preview({"path": 5})


@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
def test_every_dialect_takes_their_specs(dialect: Dialect) -> None:
    specs = tuple(tool.spec for tool in builtin_tools(BUILTIN, environment={}).values())
    body = DIALECTS[dialect].encode_request(ModelRequest("m", (user("hi"),), tools=specs), stream=True)
    assert len(body["tools"]) == len(BUILTIN)


def test_naming_the_tools_imports_none_of_them() -> None:
    code = "import sys, tailrace.tools.toolbox; print([m for m in sys.modules if m.startswith(('aiohttp', 'asyncio'))])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@pytest.mark.parametrize(
    ("args", "preview"),
    [
        ({"number": 3, "city": "Bern\nand more"}, "Bern and more"),
        ({"number": 3, "wide": True, "names": ["x"]}, "number=3 wide=true"),
        ({"names": ["x"]}, ""),
        ({}, ""),
    ],
)
def test_a_call_is_told_by_its_first_text_or_by_its_numbers(args: JsonObject, preview: str) -> None:
    assert preview_of(args) == preview
