"""What OpenAI's APIs need beside the JSON schema of an answer: its name, and whether strict mode takes it."""

from __future__ import annotations

import re

from tailrace.messages import JsonObject

_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")


def named_schema(schema: JsonObject) -> JsonObject:
    """The schema with a valid name, made of its title."""
    title = schema.get("title")
    name = _NOT_IN_A_NAME.sub("_", title)[:64] if isinstance(title, str) and title else "answer"
    return {"name": name, "schema": schema, "strict": is_strict(schema)}


def is_strict(schema: object) -> bool:
    """Whether strict mode takes this schema: each object closed, with all its properties required. The API refuses any
    other schema in strict mode with a 400, so that one is sent without it and the caller validates the answer."""
    nodes: list[object] = [schema]
    while nodes:
        node = nodes.pop()
        if isinstance(node, list):
            nodes += node
        elif isinstance(node, dict):
            properties = node.get("properties")
            if isinstance(properties, dict) or node.get("type") == "object":
                required = node.get("required")
                wanted = set(required) if isinstance(required, list) else set()
                if node.get("additionalProperties") is not False or wanted != set(properties or ()):
                    return False
            nodes += node.values()
    return True
