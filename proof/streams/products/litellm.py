"""LiteLLM's proxy: Chat Completions through it, with retries and a fallback deployment."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import ClassVar

from proof.streams.http import free_port, stream
from proof.streams.product import ENVIRONMENTS, Accepted, Ended, Product, Refused, Server, Sight, Text

KEY = "sk-of-this-test"
_KEEPS_NOTHING = "a gateway: a stream lives and dies with its connection"


class LiteLlm(Product):
    name = "litellm"
    page = "https://docs.litellm.ai/docs/proxy/reliability"
    setup = "litellm --config, num_retries 3, stream_timeout 3, a fallback model group at the same provider"
    packages = ("litellm[proxy]==1.106.0",)
    lacks: ClassVar = {
        "resume": _KEEPS_NOTHING,
        "durable": _KEEPS_NOTHING,
        "stop": _KEEPS_NOTHING,
        "store": _KEEPS_NOTHING,
        "servers": _KEEPS_NOTHING,
        "tools": "a gateway: the client runs the tools",
        "mends": "a gateway: it passes on what the model says",
    }

    async def start(self) -> None:
        port = free_port()
        self._url = f"http://127.0.0.1:{port}"
        deployment = {
            "model": "openai/numbers",
            "api_base": self.place.provider_url,
            "api_key": "none",
            "stream_timeout": 3,
            "timeout": 20,
        }
        config = {
            "model_list": [
                {"model_name": "numbers", "litellm_params": deployment},
                {"model_name": "stand-in", "litellm_params": deployment},
            ],
            "router_settings": {"num_retries": 3, "fallbacks": [{"numbers": ["stand-in"]}]},
        }
        path = self.place.directory / "config.yaml"
        path.write_text(json.dumps(config))
        program = ENVIRONMENTS / self.name / "bin" / "litellm"
        argv = [str(program), "--config", str(path), "--host", "127.0.0.1", "--port", str(port)]
        self.servers.append(
            Server("litellm", argv, f"{self._url}/health/liveliness", self.place, env={"LITELLM_MASTER_KEY": KEY})
        )
        await self.servers[0].start()

    async def ask(self, run: str, prompt: str, *, slow: bool = False) -> AsyncGenerator[Sight, None]:
        body = {"model": "numbers", "stream": True, "messages": [{"role": "user", "content": prompt}]}
        address = f"{self._url}/v1/chat/completions"
        async with stream(
            "POST", address, body=body, headers={"Authorization": f"Bearer {KEY}"}, slow=slow
        ) as response:
            if response.status != 200:
                raise Refused((await response.body()).decode(errors="replace"))
            yield Accepted()
            finished = False
            async for event in response.events():
                if event.data == "[DONE]":
                    if finished:
                        yield Ended("complete")
                    return
                told = json.loads(event.data)
                if "error" in told:
                    yield Ended("failed")
                    return
                for choice in told["choices"]:
                    finished = finished or choice.get("finish_reason") is not None
                    if text := choice["delta"].get("content"):
                        yield Text(text)

    async def kept(self, run: str) -> None:
        """Nothing."""
