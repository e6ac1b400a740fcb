"""The JSON schema of a sequence, for editors: completion and mistakes while it is written.

Made of the types that the definition and the handlers are read with; their docstrings and comments are its
descriptions. `flow check` finds more: references, conditions, models.
"""

from __future__ import annotations

import inspect
import re
from typing import Any, Final

import msgspec

from tailrace.flows.definition.definition import Definition
from tailrace.flows.definition.orch8 import LLM_CALL, TOOL_CALL, VALUES
from tailrace.flows.steps.base import Handlers
from tailrace.messages import JsonObject

_COMMENT: Final = re.compile(r"^    (\w+): .*?  # (.+)$", re.MULTILINE)
_TEMPLATE: Final = {"type": "string", "pattern": r"\{\{"}


def editor_schema(handlers: Handlers) -> JsonObject:
    own = {name: handlers[name].Params for name in handlers if name not in (LLM_CALL, TOOL_CALL, VALUES)}
    (top, *params), definitions = msgspec.json.schema_components(
        [Definition, *own.values()], ref_template="#/$defs/{name}"
    )
    for kind in own.values():
        properties = definitions[kind.__name__]["properties"]
        described = dict(_COMMENT.findall(inspect.getsource(kind)))
        for name, schema in properties.items():
            properties[name] = {"description": described[name]} if name in described else {}
            properties[name] |= {"anyOf": [schema, _TEMPLATE]}
    step = definitions["Step"]
    step["properties"]["handler"] = {"enum": list(own), "description": "what the step does"}
    step["allOf"] = [_params_of(name, schema) for name, schema in zip(own, params, strict=True)]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **top, "$defs": definitions}


def _params_of(handler: str, schema: Any) -> JsonObject:
    is_handler = {"properties": {"handler": {"const": handler}}}
    return {"if": is_handler, "then": {"properties": {"params": schema}}}
