"""Inputs that once held the whole process up, each as a function against a running server.

An attack returns when the server has dealt with it; what it says is the attack's own business, as long as it is an
answer. `ATTACKS` is what the tests and `python -m bench attacks` walk through.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from attacks.attacked_server import AttackedServer
from tailrace.messages import JsonObject
from tailrace.testing.provider import Break, Offset, Scenario, call, reply
from tailrace.testing.scripted.reply import Reply, TextBlock

SLEEP: JsonObject = {"type": "step", "id": "a", "handler": "sleep", "params": {"seconds": 0}}


def in_pieces(text: str, size: int) -> Reply:
    """An answer that comes so many characters at a time, whatever they are."""
    return Reply((TextBlock(tuple(text[at : at + size] for at in range(0, len(text), size))),))


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


async def by_input_schema(server: AttackedServer, schema: JsonObject, value: Any) -> None:
    definition = {"blocks": [SLEEP], "input_schema": {"properties": {"v": schema}}}
    status, told = await server.run_sequence(definition, {"v": value})
    assert status in (200, 400), told


async def by_answer(server: AttackedServer, schema: JsonObject, answer: Reply) -> None:
    params = {"prompt": "Go.", "response_schema": schema, "max_repair_attempts": 0, "stream": True}
    server.provider.extend(answer)
    step = {
        "type": "step",
        "id": "a",
        "handler": "llm_call",
        "params": {**params, "provider": "scripted", "model": "m"},
    }
    status, told = await server.run_sequence({"blocks": [step]})
    assert status == 200, told


# ── the attacks ──────────────────────────────────────────────────────────────────────────────────────────────


async def shell_braces(server: AttackedServer) -> None:
    """A tool call of 205 characters."""
    command = "echo " + "{a,b}" * 40
    await server.ask_agent(reply(call("terminal", {"command": command})), reply("Done."))


async def yaml_too_large(server: AttackedServer) -> None:
    """4.6 MB of YAML."""
    status, _ = await server.post("/sequences", b"- a: 1\n" * 660_000, "application/yaml")
    assert status == 413


async def yaml_within_the_limit(server: AttackedServer) -> None:
    """0.9 MB of YAML."""
    status, _ = await server.post("/sequences", b"- a: 1\n" * 130_000, "application/yaml")
    assert status == 400


async def pattern_by_input(server: AttackedServer) -> None:
    """`^(a+)+$` on 10,000 characters."""
    await by_input_schema(server, {"pattern": "^(a+)+$"}, "a" * 10_000 + "!")


async def pattern_by_answer(server: AttackedServer) -> None:
    """The same, when the model's answer brings them."""
    await by_answer(server, {"type": "string", "pattern": "^(a+)+$"}, in_pieces(json.dumps("a" * 10_000 + "!"), 50))


async def doubled_references(server: AttackedServer) -> None:
    """`anyOf` of two equal `$ref`, 22 deep."""
    branch = {"properties": {"a": {"$ref": "#/properties/v"}}, "required": ["x"]}
    await by_input_schema(server, {"anyOf": [branch, dict(branch)]}, nested(22))


async def doubled_references_by_answer(server: AttackedServer) -> None:
    """The same, when the model's answer brings them."""
    branch = {"properties": {"a": {"$ref": "#"}}, "required": ["x"]}
    await by_answer(server, {"type": "object", "anyOf": [branch, dict(branch)]}, in_pieces(json.dumps(nested(22)), 9))


async def reference_to_itself(server: AttackedServer) -> None:
    """`anyOf: [{$ref: "#"}]`."""
    status, told = await server.run_sequence({"blocks": [SLEEP], "input_schema": {"anyOf": [{"$ref": "#"}]}})
    assert status == 400, told


async def unique_items(server: AttackedServer) -> None:
    """`uniqueItems` on 60,000 numbers."""
    await by_input_schema(server, {"uniqueItems": True}, list(range(60_000)))


async def choices(server: AttackedServer) -> None:
    """An `enum` of 3,000 objects, on 20,000 values."""
    schema = {"items": {"enum": [{"a": number} for number in range(3000)]}}
    await by_input_schema(server, schema, [{"a": 2999}] * 20_000)


async def one_long_word(server: AttackedServer) -> None:
    """A cut after 20,000 letters in a row."""
    word = in_pieces("a" * 20_000, 20)
    cut = Scenario(reply=word, broken=Break("cut", Offset(90, per_cent=True)))
    await server.ask_agent(cut, in_pieces("a" * 20_000, 20))


async def digits_by_answer(server: AttackedServer) -> None:
    """40,000 digits in a streamed answer."""
    await by_answer(server, {"type": "number"}, in_pieces("1" * 40_000, 4))


async def long_text_by_answer(server: AttackedServer) -> None:
    """A text of 400 kB in a streamed answer."""
    await by_answer(server, {"type": "string", "maxLength": 10**6}, in_pieces(json.dumps("x" * 400_000), 40))


async def open_templates(server: AttackedServer) -> None:
    """`{{` 400,000 times."""
    step = {"type": "step", "id": "a", "handler": "llm_call", "params": {"prompt": "{{" * 400_000}}
    status, _ = await server.run_sequence({"blocks": [step]})
    assert status == 400


async def long_chain(server: AttackedServer) -> None:
    """A condition of 2,000 operators."""
    loop = {"type": "loop", "id": "l", "body": [SLEEP], "condition": " or ".join(["input.x"] * 900)}
    status, _ = await server.run_sequence({"blocks": [loop]})
    assert status == 400


async def unknown_names(server: AttackedServer) -> None:
    """A misspelt name among 4,000 long ones."""
    blocks = [{**SLEEP, "id": f"{'x' * 60}{number}"} for number in range(4000)]
    wrong = {**SLEEP, "params": {"seconds": "{{steps." + "y" * 9000 + ".output}}"}}
    status, _ = await server.run_sequence({"blocks": [*blocks, wrong]})
    assert status == 400


async def sub_sequences(server: AttackedServer) -> None:
    """2,400 sub-sequences in one sequence."""
    blocks = [{"type": "sub_sequence", "id": f"s{number}", "blocks": [SLEEP]} for number in range(2400)]
    status, told = await server.post("/sequences", {"name": "subs", "blocks": blocks})
    assert status == 201, told


async def json_values(server: AttackedServer) -> None:
    """30 MB of JSON lists."""
    status, _ = await server.post("/runs", b'{"input":[' + b"[]," * 10_000_000 + b"1]}")
    assert status == 400


async def json_depth(server: AttackedServer) -> None:
    """30 MB of opening brackets."""
    status, _ = await server.post("/runs", b'{"input":' + b"[" * 30_000_000)
    assert status == 400


async def json_escapes(server: AttackedServer) -> None:
    """16 MB of escaped quotes."""
    status, _ = await server.post("/runs", b'{"input":["' + b'\\"' * 8_000_000 + b'", [' + b"[]," * 300_000 + b"1]]}")
    assert status == 400


async def many_large_bodies(server: AttackedServer) -> None:
    """12 bodies of 30 MB at once."""
    body = b'{"input":"' + b"x" * 30_000_000 + b'","model":"nobody/none"}'
    answers = await asyncio.gather(*(server.post("/runs", body) for _ in range(12)), return_exceptions=True)
    assert any(not isinstance(answer, BaseException) for answer in answers), answers


class Attack(NamedTuple):
    name: str
    run: Callable[[AttackedServer], Awaitable[None]]

    @property
    def what(self) -> str:
        return (self.run.__doc__ or "").strip().rstrip(".")


_FUNCTIONS: tuple[Callable[[AttackedServer], Awaitable[None]], ...] = (
    shell_braces,
    yaml_too_large,
    yaml_within_the_limit,
    pattern_by_input,
    pattern_by_answer,
    doubled_references,
    doubled_references_by_answer,
    reference_to_itself,
    unique_items,
    choices,
    one_long_word,
    digits_by_answer,
    long_text_by_answer,
    open_templates,
    long_chain,
    unknown_names,
    sub_sequences,
    json_values,
    json_depth,
    json_escapes,
    many_large_bodies,
)
ATTACKS = tuple(Attack(function.__name__, function) for function in _FUNCTIONS)
