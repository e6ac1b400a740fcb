"""Each tutorial runs as it stands: its files are written, its commands typed, its programs run, its chat is held.

The only differences are addresses. A provider and Telegram's API on loopback stand in for the hosted ones, and the
server has a free port. In what is expected, `…` stands for anything.
"""

from __future__ import annotations

import os
import queue
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from provider_thread import provider
from tailrace.testing.provider import Reply, call, reply
from telegram_thread import TelegramOnAThread, telegram_on_a_thread

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"
PATIENCE_S = 30.0
BLOCK = re.compile(r"^```([a-z]+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TERMINAL = "terminal"
ANSWERS: dict[str, list[Reply]] = {
    "chat-agent.md": [
        reply(call(TERMINAL, {"command": "ls"})),
        reply("There is one: build."),
        reply(call(TERMINAL, {"command": "rm -rf build"})),
        reply("It is gone."),
    ],
    "openai-client.md": [reply("It carries the water away."), reply("On rivers much can be said: rivers run.")],
    "durable-steps.md": [reply("Source, current, mouth."), reply("All rivers reach the sea.")],
}


class Shell:
    """One shell for the whole tutorial, as its reader has one."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "-m"],
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def run(self, command: str, expected: list[str]) -> None:
        """Types the command; returns once it has ended well and all that is expected was printed."""
        assert self._process.stdin is not None
        self._process.stdin.write(f'{command}\nprintf "\\n#ended $?\\n"\n')
        self._process.stdin.flush()
        missing = [re.compile(".*".join(map(re.escape, line.split("…")))) for line in expected]
        printed: list[str] = []
        ended, until = "", time.monotonic() + PATIENCE_S
        while missing or not ended:
            try:
                line = self._lines.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"$ {command}\n{''.join(printed)}\nlacks {missing}") from None
            printed.append(line)
            ended = line if line.startswith("#ended") else ended
            missing = [pattern for pattern in missing if not pattern.search(line)]
        assert ended == "#ended 0\n", f"$ {command}\n{''.join(printed)}"

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("kill -9 $(jobs -p) 2> /dev/null\nexit\n")
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)


class Reader:
    """Somebody who does what the tutorial says, in an empty home."""

    def __init__(self, home: Path, provider_url: str, telegram: TelegramOnAThread) -> None:
        self.directory, self._home = home, home / ".tailrace"
        self._telegram = telegram
        self._heard = 0  # messages of the bot that were read
        self._port = _free_port()
        self._code = "CODE"  # of the pairing, once the bot has told it
        self._addresses = {
            "providers": {"anthropic": {"dialect": "anthropic", "base_url": provider_url}},
            "server": {"port": self._port},
        }
        environment = {
            **os.environ,
            "HOME": str(home),
            "ANTHROPIC_API_KEY": "sk-ant-any",
            "TAILRACE_API_KEY": "any-key",
        }
        environment |= {"TELEGRAM_BOT_TOKEN": telegram.token, "PYTHONWARNINGS": "default"}
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
        environment.pop("TAILRACE_HOME", None)
        self.shell = Shell(home, environment)

    def follow(self, language: str, text: str) -> None:
        text = text.replace("127.0.0.1:8642", f"127.0.0.1:{self._port}")
        match language:
            case "yaml" | "python":
                self._write(text)
            case "console":
                self._type(text)
            case "chat":
                self._talk(text)
            case _:
                raise AssertionError(f"nobody knows what to do with a block of {language}")

    def _write(self, text: str) -> None:
        name = text.splitlines()[0].removeprefix("# ")
        if name == "~/.tailrace/config.yaml":
            config: dict[str, Any] = {**yaml.safe_load(text), **self._addresses}
            if platforms := config.get("platforms"):
                platforms["telegram"]["base_url"] = self._telegram.url
            self._home.mkdir()
            (self._home / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        else:
            assert re.fullmatch(r"[a-z]+\.(py|yaml)", name), f"the first line of a file is its name, not {name}"
            (self.directory / name).write_text(text, encoding="utf-8")

    def _type(self, text: str) -> None:
        for typed in re.split(r"(?m)^\$ ", text)[1:]:
            command, *expected = typed.rstrip("\n").split("\n")
            if not (command.startswith("export ") and "…" in command):  # keys: the environment has them
                self.shell.run(command.replace("CODE", self._code), expected)

    def _talk(self, text: str) -> None:
        for line in text.splitlines():
            who, _, said = line.partition(": ")
            if who == "you":
                self._telegram.write(said)
            else:
                self._hear(said)

    def _hear(self, expected: str) -> None:
        """Waits until the bot has said it."""
        pattern = ".*".join(map(re.escape, expected.split("…"))).replace("CODE", "(?P<code>[A-Z0-9-]+)")

        def heard() -> re.Match[str] | None:
            for number, text in enumerate(self._telegram.texts):
                if number >= self._heard and (found := re.search(pattern, text, re.DOTALL)):
                    self._heard = number + 1
                    return found
            return None

        found = until(heard)
        assert found, f"expected {expected!r} of {self._telegram.texts}"
        if "CODE" in expected:
            self._code = found["code"]


def until(said: Callable[[], re.Match[str] | None]) -> re.Match[str] | None:
    """What a person does before a chat: look again until it is there."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := said()) is None and time.monotonic() < deadline:
        threading.Event().wait(0.02)
    return found


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def reader(home: Path, *answers: Reply) -> Iterator[Reader]:
    with provider(*answers) as upstream, telegram_on_a_thread() as telegram:
        someone = Reader(home, upstream.url, telegram)
        try:
            yield someone
        finally:
            someone.shell.close()
        asked = [request for request in upstream.requests if request.method == "POST"]
        assert len(asked) == len(answers), "each answer was asked for once"


@pytest.mark.parametrize("tutorial", sorted(ANSWERS))
def test_a_tutorial_runs_as_it_stands(tutorial: str, tmp_path: Path) -> None:
    page = (TUTORIALS / tutorial).read_text(encoding="utf-8")
    with reader(tmp_path, *ANSWERS[tutorial]) as someone:
        for language, text in BLOCK.findall(page):
            someone.follow(language, text)


def test_each_tutorial_is_run() -> None:
    assert sorted(path.name for path in TUTORIALS.glob("*.md")) == sorted(ANSWERS)
