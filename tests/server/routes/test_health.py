"""What `/readyz` says of the parts that do not work."""

from __future__ import annotations

from pathlib import Path

from server.http_server import running_server

CONFIG = "server:\n  keys:\n    - {name: probe, key_env: PROBE_KEY, scopes: [models]}\n"


async def test_J114_readyz_names_what_is_degraded_without_its_secrets(tmp_path: Path) -> None:
    env = {"PROBE_KEY": "secret-of-probe"}
    async with running_server(tmp_path, config=CONFIG, env=env) as server:
        server.app.degraded["telegram"] = "no answer from https://chat.example/secret-of-probe/getMe"
        status, body = await server.json("GET", "/readyz", headers={"x-api-key": "secret-of-probe"})
    assert status == 200
    assert "no answer from" in body["degraded"]["telegram"]
    assert "secret-of-probe" not in body["degraded"]["telegram"]
