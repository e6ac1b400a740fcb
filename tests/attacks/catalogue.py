"""Inputs that once held the whole process up, each as a function against a running server.

An attack returns when the server has dealt with it; what it says is the attack's own business, as long as it is an
answer. `ATTACKS` is what the tests and `python -m bench attacks` walk through.
"""

from __future__ import annotations

import asyncio
import io
import json
import socket
import zlib
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, NamedTuple

from attacks.attacked_server import KEY, AttackedServer
from tailrace.messages import JsonObject
from tailrace.testing.provider import Break, Offset, Scenario, call, reply
from tailrace.testing.scripted.reply import CallBlock, Reply, TextBlock

SLEEP: JsonObject = {"type": "step", "id": "a", "handler": "sleep", "params": {"seconds": 0}}


def in_pieces(text: str, size: int) -> Reply:
    """An answer that comes so many characters at a time, whatever they are."""
    return Reply((TextBlock(tuple(text[at : at + size] for at in range(0, len(text), size))),))


def call_in_pieces(name: str, arguments: JsonObject, size: int = 100_000) -> Reply:
    text = json.dumps(arguments, ensure_ascii=False)
    return Reply((CallBlock(name, tuple(text[at : at + size] for at in range(0, len(text), size))),))


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


async def arguments_of_a_megabyte(server: AttackedServer) -> None:
    """A tool call with 1 MB of arguments, of which a person is asked."""
    await server.ask_agent(call_in_pieces("terminal", {"command": "curl x " + "a\n" * 333_000}), reply("Done."))


async def arguments_of_five_megabytes(server: AttackedServer) -> None:
    """A tool call with 5 MB of arguments, all of them escapes."""
    long = call_in_pieces("write_file", {"path": "a", "content": "\x01\n" * 650_000})
    state = await server.ask_agent(long, reply("Done."))
    assert state["status"] == "completed", state


async def one_letter_cut(server: AttackedServer) -> None:
    """A cut after 5 MB of one letter."""
    cut = Scenario(reply=in_pieces("y" * 5_300_000, 100_000), broken=Break("cut", Offset(95, per_cent=True)))
    await server.ask_agent(cut, reply("Done."))


async def endless_answer(server: AttackedServer) -> None:
    """An answer of 40 MB."""
    state = await server.ask_agent(in_pieces("y" * 40_000_000, 100_000))
    assert state["status"] == "incomplete", state


async def endless_wide_answer(server: AttackedServer) -> None:
    """An answer of 8 MB whose last character makes every other one four times as wide."""
    wide = "y" * 7_000_000 + "\N{WATER WAVE}" + "y" * 2_000_000
    state = await server.ask_agent(in_pieces(wide, 100_000))
    assert state["status"] == "incomplete", state


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


async def many_wide_bodies(server: AttackedServer) -> None:
    """12 bodies of 30 MB, each with one character that makes all others wide."""
    body = b'{"input":"' + b"x" * 29_999_000 + "\N{WATER WAVE}".encode() + b'"}'
    answers = await asyncio.gather(*(server.post("/runs", body) for _ in range(12)), return_exceptions=True)
    assert any(isinstance(answer, tuple) and answer[0] == 400 for answer in answers), answers


async def gzip_without_a_key(server: AttackedServer) -> None:
    """12 bodies of 1.5 MB of gzip, 1.5 GB unpacked, without a key (O176)."""
    packed = gzip_bomb()
    headers = {"Authorization": "Bearer wrong", "Content-Encoding": "gzip"}

    async def send() -> int:
        async with server.client.post(server.url + "/runs", data=io.BytesIO(packed), headers=headers) as response:
            return response.status

    answers = await asyncio.gather(*(send() for _ in range(12)), return_exceptions=True)
    assert any(answer == 401 for answer in answers), answers


@cache
def gzip_bomb() -> bytes:
    packer, megabyte = zlib.compressobj(wbits=31), bytes(1_000_000)
    return b"".join([packer.compress(megabyte) for _ in range(1500)]) + packer.flush()


async def gzip_with_a_key(server: AttackedServer) -> None:
    """The same body with a key, four at once."""
    packed = gzip_bomb()

    async def send() -> int:
        headers = {"Content-Encoding": "gzip"}
        async with server.client.post(server.url + "/runs", data=io.BytesIO(packed), headers=headers) as response:
            return response.status

    answers = await asyncio.gather(*(send() for _ in range(4)), return_exceptions=True)
    assert any(answer == 413 for answer in answers), answers


async def unread_approval_streams(server: AttackedServer) -> None:
    """300 streams of approvals that no client reads, and 60 questions (O181)."""
    connections = [server.unread("/approvals/stream") for _ in range(300)]
    try:
        asks = reply(call("terminal", {"command": "rm -r /srv/mill/" + "x" * 2000}))
        for _ in range(60):
            server.provider.extend(asks)
        begun = [await server.post("/runs", {"input": "Go."}) for _ in range(60)]
        for status, told in begun:
            assert status == 201, told
            await server.post(f"/runs/{told['id']}/stop", {})
    finally:
        for connection in connections:
            connection.close()


async def _raw_answer(server: AttackedServer, model: str) -> None:
    body = {"model": f"hostile/{model}", "messages": [{"role": "user", "content": "Go."}], "stream": True}
    async with server.client.post(server.url + "/v1/chat/completions", json=body) as response:
        async for _ in response.content.iter_any():
            pass


async def endless_raw_answer(server: AttackedServer) -> None:
    """A raw answer without an end, at full speed (O178)."""
    await _raw_answer(server, "endless-content")


async def endless_raw_thought(server: AttackedServer) -> None:
    """The same as a thought."""
    await _raw_answer(server, "endless-reasoning_content")


async def endless_raw_field(server: AttackedServer) -> None:
    """The same as a field that we do not know."""
    await _raw_answer(server, "endless-unknown_to_us")


async def endless_raw_wide_answer(server: AttackedServer) -> None:
    """The same in characters that take four bytes."""
    await _raw_answer(server, "endless-wide")


async def endless_response(server: AttackedServer) -> None:
    """The same as a response, which is kept."""
    body = {"model": "hostile/endless-content", "input": "Go.", "stream": True}
    async with server.client.post(server.url + "/v1/responses", json=body) as response:
        async for _ in response.content.iter_any():
            pass


async def packed_answers(server: AttackedServer) -> None:
    """250 MB of comments of a provider, as gzip, deflate and zstd (O180)."""
    for model in ("gzip", "gzip-with-noise", "deflate", "zstd"):
        await _raw_answer(server, model)


async def growing_bodies(server: AttackedServer) -> None:
    """300 bodies of 2 MB that grow together and never end."""
    head = b"POST /runs HTTP/1.1\r\nHost: 127.0.0.1\r\nx-api-key: %s\r\nContent-Length: 2000001\r\n\r\n" % KEY.encode()
    connections = [server.connection() for _ in range(300)]
    try:
        await asyncio.gather(*(_send(connection, head) for connection in connections))
        for _ in range(20):
            await asyncio.gather(*(_send(connection, b"x" * 100_000) for connection in connections))
    finally:
        for connection in connections:
            connection.close()


async def endless_body_without_a_key(server: AttackedServer) -> None:
    """A body without an end and without a key (O176)."""
    connection = server.connection()
    head = b"POST /runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2000000000\r\n\r\n"
    try:
        await _send(connection, head)
        while await _send(connection, bytes(1_000_000)):
            pass
    finally:
        connection.close()


async def _send(connection: socket.socket, data: bytes) -> bool:
    """Whether the server still takes something."""
    connection.setblocking(False)
    try:
        async with asyncio.timeout(5):
            await asyncio.get_running_loop().sock_sendall(connection, data)
    except (OSError, TimeoutError):
        return False
    return True


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
    arguments_of_a_megabyte,
    arguments_of_five_megabytes,
    one_letter_cut,
    endless_answer,
    endless_wide_answer,
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
    many_wide_bodies,
    gzip_without_a_key,
    gzip_with_a_key,
    unread_approval_streams,
    endless_raw_answer,
    endless_raw_thought,
    endless_raw_field,
    endless_raw_wide_answer,
    endless_response,
    packed_answers,
    growing_bodies,
    endless_body_without_a_key,
)
ATTACKS = tuple(Attack(function.__name__, function) for function in _FUNCTIONS)
