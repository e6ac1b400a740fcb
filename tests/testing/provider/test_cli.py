"""`python -m tailrace.testing.provider`: one line says where it listens; a mistake is one line too."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import aiohttp
import pytest

from tailrace.testing.provider.__main__ import main


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
async def test_it_listens_answers_and_ends_on_a_signal(number: signal.Signals, status: int) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tailrace.testing.provider",
        "--port",
        "0",
        "--script",
        "status-500",
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    line = (await child.stdout.readline()).decode()
    found = re.match(r"listening on (http://127\.0\.0\.1:\d+) · OpenAI clients: base_url=\1/v1 · Anthropic", line)
    assert found, line
    body = json.dumps({"model": "ok"}).encode()
    statuses, texts = [], []
    for _ in range(2):
        request = urllib.request.Request(found[1] + "/v1/chat/completions", body)  # noqa: S310
        try:
            with await asyncio.to_thread(urllib.request.urlopen, request) as response:
                statuses.append(response.status)
                texts.append(json.load(response)["choices"][0]["message"]["content"])
        except urllib.error.HTTPError as exc:
            statuses.append(exc.code)
            exc.close()
    assert statuses == [500, 200]
    assert texts[0].startswith("The mill wheel")
    child.send_signal(number)
    assert await child.wait() == status
    assert await child.stdout.read() == b""


async def test_a_strict_provider_plays_turns_and_records_what_was_asked(tmp_path: Path) -> None:
    turns, record = tmp_path / "turns.json", tmp_path / "requests.jsonl"
    turns.write_text('{"agentic": ["Done."]}', encoding="utf-8")
    arguments = ["--port", "0", "--strict", "--returns-reasoning", "--turns", str(turns), "--record", str(record)]
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tailrace.testing.provider", *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    url = (await child.stdout.readline()).decode().split()[2]
    async with aiohttp.ClientSession() as session:
        statuses, said = [], []
        for body in ({"model": "agentic", "input": "Go.", "colour": 1}, {"model": "agentic", "input": "Go."}):
            async with session.post(url + "/v1/responses", json=body) as response:
                statuses.append(response.status)
                said.append(await response.json())
    child.terminate()
    await child.wait()
    assert statuses == [400, 200]
    assert said[0]["error"]["message"] == "Unknown parameter: 'colour'."
    assert said[1]["output"][0]["content"][0]["text"] == "Done."
    first = json.loads(record.read_text(encoding="utf-8").splitlines()[0])
    assert (first["path"], first["refusal"]) == ("/v1/responses", "Unknown parameter: 'colour'.")
    assert json.loads(first["body"])["colour"] == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "it ends too early"),
        (None, "no such file or directory"),
        ('{"one": ["Done."], "two": [1]}', "the turn 'two': [0]: must be text or a list, not a number"),
        ('{"one": ["Done."], "two": [[{"cry": "Oh!"}]]}', "the turn 'two': expected a text, or an object with say"),
        ('{"one": []}', "the turn 'one' has no answers"),
    ],
)
def test_a_bad_file_of_turns_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, why: str
) -> None:
    path = tmp_path / "turns.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["--turns", str(path)])
    [line] = capsys.readouterr().err.splitlines()
    assert "--turns" in line
    assert why in line


def test_the_list_names_every_kind_of_term(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    out = capsys.readouterr().out
    for term in ("ok", "cut@N", "status-CODE-after-S", "crlf", "index-zero", "error-KIND"):
        assert f"  {term} " in out


def test_the_list_may_be_read_in_part() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = [sys.executable, "-m", "tailrace.testing.provider", "--list"]
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False, timeout=60)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--port", "x"], "error: argument --port: 'x' is not a port between 0 and 65535; see --help\n"),
        (["--port", "70000"], "error: argument --port: '70000' is not a port between 0 and 65535; see --help\n"),
        (["--nope"], "error: unrecognized arguments: --nope; see --help\n"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err == said


def test_a_taken_port_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["--port", str(port)]) == 1
    assert capsys.readouterr().err == f"error: cannot listen on 127.0.0.1:{port}: address already in use\n"
