"""An MCP server over pipes, without the SDK, that lists more tools than anybody wants: `… COUNT PAGE`."""

from __future__ import annotations

import json
import sys
from typing import Any

COUNT, PAGE = int(sys.argv[1]), int(sys.argv[2])


def tool(number: int) -> dict[str, Any]:
    return {"name": f"tool{number}", "description": "x" * 100, "inputSchema": {"type": "object", "properties": {}}}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        info = {"name": "many", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        start = int(params.get("cursor") or 0)
        end = min(COUNT, start + PAGE)
        return {
            "tools": [tool(number) for number in range(start, end)],
            "nextCursor": str(end) if end < COUNT else None,
        }
    return {} if method == "ping" else None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    result = answer(request["method"], request.get("params") or {})
    failed = {"error": {"code": -32601, "message": "no such method"}}
    outcome = failed if result is None else {"result": result}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **outcome}) + "\n")
    sys.stdout.flush()
