"""Mistakes in the config file: each is named with file, line and key, in one line, and never shows a secret."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.config.load import MAX_FILE_BYTES, load
from tailrace.config.section_parser import parse_section
from tailrace.config.sections import Sections
from tailrace.errors import ConfigError


def mistake(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse_section(text, Sections, "config.yaml")
    return caught.value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("streming: {}", "config.yaml:1: streming: unknown key; did you mean streaming?"),
        (
            "# a comment\nstreaming:\n  min_token: 3\n",
            "config.yaml:3: streaming.min_token: unknown key; did you mean min_tokens?",
        ),
        ("checkpoints: {x: 1}", "config.yaml:1: checkpoints.x: unknown key; known here: enabled"),
        ("platforms: {telegramm: {}}", "config.yaml:1: platforms.telegramm: unknown key; did you mean telegram?"),
        (
            "call:\n  max_attempts: lots\n",
            "config.yaml:2: call.max_attempts: expected a whole number of at least 1; found 'lots'",
        ),
        (
            "providers:\n  up: {dialect: chat, reattach: true}\n",
            (
                "config.yaml:2: providers.up.reattach: needs dialect: responses; "
                "chat has no answers that the provider keeps"
            ),
        ),
        (
            "providers:\n  up: {dialect: responses, stream: false, reattach: true}\n",
            (
                "config.yaml:2: providers.up.reattach: needs stream: auto; "
                "an answer that is asked for whole cannot be read on"
            ),
        ),
        ("call: {max_attempts: 0}", "config.yaml:1: call.max_attempts: expected a whole number of at least 1; found 0"),
        (
            "call: {max_attempts: true}",
            "config.yaml:1: call.max_attempts: expected a whole number of at least 1; found true",
        ),
        ("call: {backoff_s: .inf}", "config.yaml:1: call.backoff_s: expected a number of seconds above 0; found .inf"),
        (
            "call:\n  connect_timeout_s:\n",
            "config.yaml:2: call.connect_timeout_s: expected a number of seconds above 0; found nothing",
        ),
        (
            "agent: {show_reasoning: maybe}",
            "config.yaml:1: agent.show_reasoning: expected true or false; found 'maybe'",
        ),
        ("agent: {tools: terminal}", "config.yaml:1: agent.tools: expected a list; found 'terminal'"),
        ("agent:\n  tools:\n    - terminal\n    - [x]\n", "config.yaml:4: agent.tools[1]: expected text; found a list"),
        ("agent: 3", "config.yaml:1: agent: expected keys and values; found 3"),
        (
            "model: openai/gpt-5",
            "config.yaml:1: model: expected keys and values: {provider: openai, name: gpt-5}; found 'openai/gpt-5'",
        ),
        (
            "model: {fallbacks: [a/b]}",
            "config.yaml:1: model.fallbacks[0]: expected keys and values: {provider: a, name: b}; found 'a/b'",
        ),
        ("model: gpt-5", "config.yaml:1: model: expected keys and values; found 'gpt-5'"),
        ("- a", "config.yaml:1: expected keys and values; found a list"),
        (
            "model:\n  provider: openai\n  fallbacks: []\n",
            "config.yaml:2: model.name: is missing: which model of openai?",
        ),
        ("model: {name: 5}", "config.yaml:1: model.name: expected text; found 5"),
        ("model:\n  fallbacks:\n    - provider: a\n", "config.yaml:3: model.fallbacks[0].name: is missing"),
        (
            "providers: {a: {dialect: chatt}}",
            "config.yaml:1: providers.a.dialect: expected one of chat, responses, anthropic; found 'chatt'",
        ),
        (
            "providers: {a: {base_url: example.org}}",
            "config.yaml:1: providers.a.base_url: expected an http:// or https:// address; found 'example.org'",
        ),
        (
            "server: {port: 65536}",
            "config.yaml:1: server.port: expected a port from 0 (any free one) to 65535; found 65536",
        ),
        (
            "providers: {a: {stream: true}}",
            "config.yaml:1: providers.a.stream: expected auto, or false to ask for whole answers; found true",
        ),
        (
            "providers: {a: {stream: never}}",
            "config.yaml:1: providers.a.stream: expected auto, or false to ask for whole answers; found 'never'",
        ),
        ("bus: {url: kafka://x}", "config.yaml:1: bus.url: expected auto, memory:// or redis://…; found another text"),
        ("agent: {}\nbus: {}\nagent: {}\n", "config.yaml:3: agent: given twice, first on line 1"),
        (
            "providers: {a: {extra_body: {x: {y: 1, y: 2}}}}",
            "config.yaml:1: providers.a.extra_body.x.y: given twice, first on line 1",
        ),
        (
            "providers: {a: {extra_body: {when: 2026-01-01}}}",
            "config.yaml:1: providers.a.extra_body.when: 2026-01-01 has no JSON form; quote it to make it text",
        ),
        ("<<: {agent: {}}", "config.yaml:1: a key must be plain text; merging with << is not supported"),
        ("? [a]\n: b", "config.yaml:1: a key must be plain text; merging with << is not supported"),
        (
            '"a\\nb": 1',
            "config.yaml:1: 'a\\nb': unknown key; known here: " + ", ".join(sorted(Sections.__struct_fields__)),
        ),
        ("agent: {max_turns: !!int x}", "config.yaml:1: agent.max_turns: not a value: x"),
    ],
)
def test_the_message(text: str, message: str) -> None:
    assert str(mistake(text)) == message


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("agent: [", 1),
        ("agent:\n\tmax_turns: 1\n", 2),
        ("a: b: c", 1),
        ("x: 1\n---\ny: 2\n", 2),
        ("a: *nobody", 1),
        ("a:\n  b\x07", 2),
    ],
)
def test_what_is_not_yaml_is_named_with_its_line(text: str, line: int) -> None:
    error = mistake(text)
    assert error.line == line
    assert str(error).startswith(f"config.yaml:{line}: not YAML: ")
    assert "\n" not in str(error)


def test_the_error_carries_its_parts() -> None:
    error = mistake("agent:\n  max_turns: x\n")
    assert (error.file, error.line, error.key) == ("config.yaml", 2, "agent.max_turns")


@pytest.mark.parametrize(
    "text",
    [
        "providers: {a: {key_env: sk-hunter2-x}}",
        "providers: {a: {api_key: sk-hunter2-x}}",
        "providers: {a: {key: sk-hunter2-x}}",
        "platforms: {telegram: {token: hunter2}}",
        "platforms: {matrix: {password: hunter2}}",
        "store: {url: 'mysql://u:hunter2@db'}",
        "flows: {env_allow: [sk-hunter2]}",
    ],
)
def test_J114_a_secret_put_where_it_does_not_belong_is_not_repeated(text: str) -> None:
    assert "hunter2" not in str(mistake(text))


def test_a_pasted_key_is_told_where_it_belongs() -> None:
    message = str(mistake("providers:\n  a:\n    api_key: x\n"))
    assert message == (
        "config.yaml:3: providers.a.api_key: secrets come from the environment; name the variable in key_env"
    )


def test_endless_nesting_is_refused() -> None:
    deep = sys.getrecursionlimit() * 2
    assert "nested too deeply" in str(mistake("[" * deep))
    assert "nested too deeply" in str(mistake("providers: {a: {extra_body: &x {y: *x}}}"))


def test_aliases_cannot_grow_without_bound() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    text = "providers:\n  p:\n    extra_body:\n" + "".join(f"      {line}\n" for line in lines)
    assert "grows past" in str(mistake(text))


def test_a_plain_alias_is_understood() -> None:
    sections = parse_section("providers: {a: {headers: &h {X: y}}, b: {headers: *h}}", Sections, "")
    assert dict(sections.providers["b"].headers) == {"X": "y"}


# ── the file itself ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_bytes(b"agent: {}\n# caf\xe9\n")
    with pytest.raises(ConfigError, match=r"config\.yaml:2: not UTF-8 text$"):
        load({}, tmp_path)


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_bytes(b"\xef\xbb\xbfagent: {max_turns: 9}\n")
    assert load({}, tmp_path).agent.max_turns == 9


def test_a_directory_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").mkdir()
    with pytest.raises(ConfigError, match=r"config\.yaml: cannot be read: Is a directory$"):
        load({}, tmp_path)


def test_a_home_that_cannot_be_looked_into_is_named_and_not_a_file_in_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.touch()
    with pytest.raises(ConfigError, match=r"/home: cannot be read: Not a directory$"):
        load({"TAILRACE_HOME": str(home)})


def test_a_file_past_the_cap_is_not_parsed(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(ConfigError, match="larger than"):
        load({}, tmp_path)


WORDS = st.sampled_from(
    ["agent", "model", "providers", "platforms", "telegram", "allow", "call", "backoff_s", "name", "null", "true", "1",
     "0x", "1e3", "2026-13-45", ".nan", "!!int", "!!binary", "!x", "&a", "*a", "<<", "-", "?", ":", ": ", "{", "}", "[",
     "]", ",", "\n", "\n  ", "'", '"', "#", "|", ">", "%", "@", "\t", "é", "\x00", "---", "..."]
)  # fmt: skip


@given(st.lists(WORDS, max_size=30).map("".join) | st.text())
def test_any_text_is_a_config_or_one_line_of_complaint(text: str) -> None:
    try:
        parse_section(text, Sections, "config.yaml")
    except ConfigError as exc:
        assert str(exc).startswith("config.yaml")  # noqa: PT017 - either outcome is right
        assert str(exc).isprintable()  # noqa: PT017
