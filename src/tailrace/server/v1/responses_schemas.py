"""The bodies of `/v1/responses` for `/openapi.json`: the fields that we read and promise; the rest is OpenAI's."""

from __future__ import annotations

from tailrace.messages import JsonObject

REQUEST: JsonObject = {
    "type": "object",
    "required": ["model"],
    "properties": {
        "model": {"type": "string", "description": "`tailrace`, or `<provider>/<model>` for the raw model."},
        "input": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]},
        "stream": {"type": ["boolean", "null"]},
        "store": {"type": ["boolean", "null"]},
        "background": {"type": ["boolean", "null"]},
        "previous_response_id": {"type": ["string", "null"]},
        "conversation": {
            "oneOf": [
                {"type": "string"},
                {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}},
                {"type": "null"},
            ]
        },
    },
    "additionalProperties": True,
    "description": "As OpenAI's API documents it. A raw model of the same dialect is sent every field.",
}
RESPONSE: JsonObject = {
    "type": "object",
    "required": ["id", "object", "created_at", "status", "model", "output"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "response"},
        "created_at": {"type": "integer"},
        "status": {"enum": ["in_progress", "completed", "incomplete", "failed", "cancelled"]},
        "model": {"type": "string"},
        "output": {"type": "array", "items": {"type": "object"}},
        "usage": {"type": ["object", "null"]},
    },
    "additionalProperties": True,
}
INPUT_ITEMS: JsonObject = {
    "type": "object",
    "required": ["object", "data", "first_id", "last_id", "has_more"],
    "properties": {
        "object": {"const": "list"},
        "data": {"type": "array", "items": {"type": "object"}},
        "first_id": {"type": ["string", "null"]},
        "last_id": {"type": ["string", "null"]},
        "has_more": {"type": "boolean"},
    },
}
DELETED: JsonObject = {
    "type": "object",
    "required": ["id", "object", "deleted"],
    "properties": {"id": {"type": "string"}, "object": {"const": "response"}, "deleted": {"const": True}},
}
