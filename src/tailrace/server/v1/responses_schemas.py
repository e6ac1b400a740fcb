"""The bodies of `/v1/responses` for `/openapi.json`: the fields that we read and promise; the rest is OpenAI's."""

from __future__ import annotations

from tailrace.messages import JsonObject
from tailrace.server.http.route import OBJECTS, TEXT, nullable, object_schema
from tailrace.server.v1.answer_route import request_schema

_BODY: JsonObject = request_schema(
    "OpenAI",
    {},
    input={"oneOf": [{**TEXT, "minLength": 1}, {**OBJECTS, "minItems": 1}]},
    store=nullable("boolean"),
    background=nullable("boolean"),
    previous_response_id=nullable("string"),
    conversation={"oneOf": [TEXT, object_schema({"id": TEXT}), {"type": "null"}]},
)
_NEEDED = ("input", "previous_response_id", "conversation")  # one of them: there is something to answer
REQUEST: JsonObject = {**_BODY, "anyOf": [{"required": [name]} for name in _NEEDED]}
RESPONSE: JsonObject = object_schema(
    {
        "id": TEXT,
        "object": {"const": "response"},
        "created_at": {"type": "integer"},
        "status": {"enum": ["in_progress", "completed", "incomplete", "failed", "cancelled"]},
        "model": TEXT,
        "output": OBJECTS,
    },
    {"usage": nullable("object")},
    additionalProperties=True,
)
INPUT_ITEMS: JsonObject = object_schema(
    {
        "object": {"const": "list"},
        "data": OBJECTS,
        "first_id": nullable("string"),
        "last_id": nullable("string"),
        "has_more": {"type": "boolean"},
    }
)
COUNT: JsonObject = object_schema(
    {"object": {"const": "response.input_tokens"}, "input_tokens": {"type": "integer", "minimum": 0}}
)
DELETED: JsonObject = object_schema({"id": TEXT, "object": {"const": "response"}, "deleted": {"const": True}})
