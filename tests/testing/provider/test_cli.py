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


def test_the_list_names_every_kind_of_term(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    out = capsys.readouterr().out
    for term in ("ok", "cut@N", "status-CODE-after-S", "crlf", "unreadable", "error-KIND"):
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
