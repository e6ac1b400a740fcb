"""An MCP server of the handshake era over pipes, without the SDK: `old_server.py [LIE]`. It asks its client for what
clients may refuse, announces changes by itself, logs, and lies where it is told to: `tools`, `result`, `junk`.
As `strict` it ends at a method that it does not know, as servers with the SDK to 1.5 do."""

from __future__ import annotations

import json
import sys
from typing import Any

LIE = sys.argv[1] if len(sys.argv) > 1 else ""
ASKS = {
    "elicit": ("elicitation/create", {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}),
    "sample": ("sampling/createMessage", {"messages": [], "maxTokens": 1}),
    "roots": ("roots/list", {}),
}
known = ["elicit", "sample", "roots", "change", "shout", "die"]
capable: dict[str, Any] = {}


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def tool(name: str) -> dict[str, Any]:
    hints = {"readOnlyHint": name != "die"}
    return {"name": name, "inputSchema": {"type": "object"}, "annotations": hints}


def called(name: str) -> dict[str, Any]:
    if name in ASKS:
        method, params = ASKS[name]
        send(id="ask", method=method, params=params)
        answer = json.loads(sys.stdin.readline())
        text = json.dumps({"can": capable, "got": answer.get("error") or answer.get("result")})
        return {"content": [{"type": "text", "text": text}]}
    if name == "die":
        sys.exit("it died")
    if name == "change":
        known.append("changed")
        send(method="notifications/tools/list_changed")
    if name == "shout":
        send(method="notifications/message", params={"level": "error", "data": "the mill\nis on fire"})
    return {"content": 7} if LIE == "result" else {"content": [], "structuredContent": {"ok": True}}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        capable.update(params["capabilities"])
        offers = {"tools": {"listChanged": True}}
        info = {"name": "old", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": offers, "serverInfo": info}
    if method == "tools/list":
        return {"tools": 7} if LIE == "tools" else {"tools": [tool(name) for name in known]}
    return called(params["name"]) if method == "tools/call" else None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    if LIE == "junk":
        sys.stdout.write("Starting up!\n[]\n{}\n")
    result = answer(request["method"], request.get("params") or {})
    if result is None and LIE == "strict":
        sys.exit("ValidationError: 38 validation errors for ClientRequest")
    if result is None:
        send(id=request["id"], error={"code": -32601, "message": "no such method"})
    else:
        send(id=request["id"], result=result)
