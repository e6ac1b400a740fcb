"""Claude Code and Codex, unchanged, as processes that end with the test."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from clients.installed import client_environment
from tailrace.messages import JsonObject

LONGEST_S = 90  # of one run: a second or two on an idle core
KEY = "the-clients-key"
CODEX_CONFIG = """
model = "{model}"
model_provider = "tailrace"

[model_providers.tailrace]
name = "Tailrace"
base_url = "{url}/v1"
env_key = "TAILRACE_API_KEY"
wire_api = "responses"
"""
# The requests that Claude Code makes besides: updates, error reports, the title of a session.
QUIET = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}


@dataclass(frozen=True)
class Ended:
    status: int | None
    out: str
    err: str


@dataclass(frozen=True)
class CodingAgent:
    """A program, the directory that it works in and its environment."""

    program: str
    directory: Path
    environment: Mapping[str, str]

    @asynccontextmanager
    async def started(self, *arguments: str) -> AsyncGenerator[Process, None]:
        """Leaving the block ends the program and all that it has started."""
        process = await asyncio.create_subprocess_exec(
            self.program,
            *arguments,
            cwd=self.directory,
            env=self.environment,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.communicate()

    async def run(self, *arguments: str) -> Ended:
        async with asyncio.timeout(LONGEST_S), self.started(*arguments) as process:
            out, err = await process.communicate()
        return Ended(process.returncode, out.decode(), err.decode())


def claude_code(home: Path, url: str, *, model: str = "", variables: Mapping[str, str] = QUIET) -> CodingAgent:
    """With the server's address and key, and the models that its tiers stand for where `model` is not empty."""
    tiers = ("ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL") if model else ()
    chosen = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": KEY, **dict.fromkeys(tiers, model), **variables}
    return _agent("claude", home, chosen)


def codex(home: Path, url: str, *, model: str, retries: int | None = None, web_sockets: bool = False) -> CodingAgent:
    config = home / ".codex/config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    text = CODEX_CONFIG.format(model=model, url=url)
    if retries is not None:
        text += f"request_max_retries = {retries}\nstream_max_retries = {retries}\n"
    if web_sockets:
        text += "supports_websockets = true\n"
    config.write_text(text, encoding="utf-8")
    return _agent("codex", home, {"TAILRACE_API_KEY": KEY})


def thoughts_in(body: JsonObject) -> list[str]:
    """The reasoning that a provider of whichever dialect is given back, as signed or encrypted as it was."""
    if "input" in body:
        items = [item for item in body["input"] if item.get("type") == "reasoning" and item["encrypted_content"]]
        return [item["summary"][0]["text"] for item in items]
    answers = [message for message in body["messages"] if message["role"] == "assistant"]
    if any("reasoning_content" in answer for answer in answers):
        return [answer["reasoning_content"] for answer in answers if "reasoning_content" in answer]
    blocks = [block for answer in answers if isinstance(answer["content"], list) for block in answer["content"]]
    return [block["thinking"] for block in blocks if block.get("type") == "thinking"]


def _agent(name: str, home: Path, variables: Mapping[str, str]) -> CodingAgent:
    directory, temporary = home / "mill", home / "tmp"
    for made in (directory, temporary):
        made.mkdir(parents=True, exist_ok=True)
    environment = client_environment(home, {"TMPDIR": str(temporary), **variables})
    programs = environment["PATH"].split(os.pathsep)
    program = next(path for path in (Path(each) / name for each in programs) if path.exists())
    return CodingAgent(str(program), directory, environment)
