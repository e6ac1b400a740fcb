"""A gateway with platforms in memory, an application behind it, and a model that says what it is told."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from proof.memory_platform import ChatView, MemoryPlatform

from delivery.planning.played_plans import EDITING
from tailrace.app import App, open_app
from tailrace.config.load import load
from tailrace.delivery.port import (
    Attachment,
    ButtonPressed,
    Capabilities,
    ChatKind,
    MessageReceived,
    Place,
    Platform,
    Quoted,
    Sender,
)
from tailrace.gateway.gateway import Gateway
from tailrace.testing.provider import FaultyProvider, Reply, Scenario, call, reply

CONFIG = """
model: {{provider: faulty, name: ok}}
providers: {{faulty: {{dialect: chat, base_url: '{url}', backoff_s: 0.001}}}}
streaming: {{enabled: {streaming}, min_tokens: 3}}
store: {{url: '{store}'}}
server: {{drain_s: {drain_s}}}
approvals: {{{approvals}}}
platforms:
  telegram: {{enabled: true, allow: [{allow}]{more}}}
  matrix: {{enabled: true, allow: ["*"]}}
"""
DANGEROUS = reply(call("terminal", {"command": "rm -rf build"}))
LONG = " ".join(f"word{number}" for number in range(60))
SLOW = Scenario(reply=reply(LONG), pace_s=0.2)


@dataclass
class Town:
    """What a test holds of a gateway that runs."""

    app: App
    gateway: Gateway
    platform: MemoryPlatform
    provider: FaultyProvider
    updates: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def chat(self) -> ChatView:
        return self.platform.chat("42")

    @property
    def said(self) -> list[str]:
        """What the model was told the last time, without the system prompt."""
        messages = json.loads(self.provider.requests[-1].body)["messages"]
        return [message["content"] for message in messages if message["role"] != "system"]

    async def write(
        self,
        text: str,
        *,
        user: str = "1",
        name: str = "",
        thread: str = "",
        kind: ChatKind = "private",
        addressed: bool = True,
        update_id: str = "",
        at_limit: bool = False,
        attachments: Sequence[Attachment] = (),
        to_others: bool = False,
        late_s: float | None = None,
        quoted: Sequence[Quoted] = (),
    ) -> None:
        await self.platform.receive(
            MessageReceived(
                update_id or f"u{next(self.updates)}",
                Place("telegram", "42", thread, kind),
                Sender(user, name or f"user {user}"),
                text,
                tuple(attachments),
                addressed,
                at_limit,
                to_others=to_others,
                late_s=late_s,
                quoted=tuple(quoted),
            )
        )

    async def press(self, value: str, *, user: str = "1") -> None:
        place = Place("telegram", "42")
        await self.platform.receive(ButtonPressed(f"u{next(self.updates)}", place, Sender(user), value))

    async def runs(self) -> list[str]:
        return [run.id for run in await self.app.journal.runs(kind="agent")]


@asynccontextmanager
async def town(
    home: Path,
    *script: str | Scenario | Reply,
    capabilities: Capabilities = EDITING,
    allow: str = "1, 2",
    more: str = "",
    store: str = "memory://",
    drain_s: float = 20.0,
    streaming: bool = True,
    others: Sequence[Platform] = (),
    platform: MemoryPlatform | None = None,
    approvals: str = "",
) -> AsyncGenerator[Town, None]:
    async with FaultyProvider(script=script) as provider:
        told = {"store": store, "drain_s": drain_s, "allow": allow, "more": more, "streaming": str(streaming).lower()}
        told["approvals"] = approvals
        text = CONFIG.format(url=provider.openai_url, **told)
        (home / "config.yaml").write_text(text, encoding="utf-8")
        platform = platform if platform is not None else MemoryPlatform(capabilities)
        async with open_app(load({}, home), directory=home) as app, Gateway(app, [platform, *others]) as gateway:
            await app.agents.recover()
            yield Town(app, gateway, platform, provider)


def asked_of_model(here: Town, number: int = -1) -> list[dict[str, object]]:
    """The messages of one request as the model got them, without the system prompt."""
    body = json.loads(here.provider.requests[number].body)
    return [message for message in body["messages"] if message["role"] != "system"]
