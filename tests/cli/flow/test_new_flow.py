"""`tailrace flow new` and `flow schema`, and what `flow check` finds in what they help to write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema_rs import Draft202012Validator

from tailrace.cli.main import main
from tailrace.flows.definition.source import parse_source
from tailrace.flows.definition.validate import mistakes_in

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert main(["flow", "new", "water"]) == 0
    return tmp_path / "water.yaml"


def errors_in(written: Path, value: Any) -> list[Any]:
    schema = json.loads((written.parent / "flow.schema.json").read_text(encoding="utf-8"))
    return [error.instance_path for error in Draft202012Validator(schema).iter_errors(value)]


def test_a_new_flow_is_fine_and_names_the_schema_beside_it(written: Path) -> None:
    text = written.read_text(encoding="utf-8")
    assert text.startswith("# yaml-language-server: $schema=./flow.schema.json\n")
    assert main(["flow", "check", "water.yaml"]) == 0
    assert errors_in(written, yaml.safe_load(text)) == []


def test_a_file_that_is_there_is_not_overwritten(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = written.read_text(encoding="utf-8")
    assert main(["flow", "new", "water"]) != 0
    assert "water.yaml: is there already" in capsys.readouterr().err
    assert written.read_text(encoding="utf-8") == before


def test_the_schema_describes_each_key_and_finds_what_is_misspelt(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["flow", "schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema == json.loads((written.parent / "flow.schema.json").read_text(encoding="utf-8"))
    assert schema["$defs"]["ForEach"]["description"].startswith("For every item of a list.")
    assert "JSON schema" in schema["$defs"]["LlmParams"]["properties"]["response_schema"]["description"]
    flow = yaml.safe_load(written.read_text(encoding="utf-8"))
    flow["blocks"][0]["params"]["promt"] = "x"
    flow["blocks"][1]["handler"] = "llm"
    assert errors_in(written, flow) == [["blocks", 0], ["blocks", 1]]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_the_schema_takes_what_runs(example: Path, written: Path) -> None:
    assert errors_in(written, yaml.safe_load(example.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    ("template", "schema", "found"),
    [
        ("{{input.topik}}", {"properties": {"topic": {}}}, ["there is no input 'topik'; did you mean topic?"]),
        ("{{input.topik}}", {}, []),
        ("{{input.extra}}", {"properties": {"topic": {}}}, []),  # the schema allows it
        (
            "{{input.extra}}",
            {"properties": {"topic": {}}, "additionalProperties": False},
            ["there is no input 'extra'"],
        ),
    ],
)
def test_a_misspelt_input_is_found(template: str, schema: dict[str, Any], found: list[str]) -> None:
    step = {"type": "step", "id": "a", "handler": "h", "params": {"text": template}}
    inner = {"type": "sub_sequence", "id": "b", "blocks": [step]}  # has an input of its own
    document = {"name": "n", "input_schema": schema, "blocks": [step, inner]}
    definition = parse_source(json.dumps(document), "n.json").definition()

    class Anything:
        def mistakes(self, _params: object) -> list[tuple[str, str]]:
            return []

        unknown_models = mistakes

    problems = [mistake.message for mistake in mistakes_in(definition, {"h": Anything()})]
    assert len(problems) == len(found)
    assert all(problem.startswith(begins) for problem, begins in zip(problems, found, strict=True))
