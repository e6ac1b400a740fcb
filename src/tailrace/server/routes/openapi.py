"""`/openapi.json`: generated from the routes and the types of their bodies, so it cannot contradict them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from http import HTTPStatus
from typing import Any, Final

import msgspec
from aiohttp import web

from tailrace import __version__
from tailrace.messages import JsonObject
from tailrace.server.http.api_errors import error_format
from tailrace.server.http.request_body import needs_nothing
from tailrace.server.http.route import TEXT, Body, Route, nullable, object_schema

_REF: Final = "#/components/schemas/{name}"
_PARAMETER: Final = re.compile(r"\{([A-Za-z_]+)(?::[^{}]*)?\}")
_ALWAYS: Final = (400, 401, 403, 503)
_OPENAI_ERROR: Final = {"message": TEXT, "type": TEXT, "param": nullable("string"), "code": nullable("string")}
ERROR_SCHEMAS: Final[dict[str, JsonObject]] = {
    "openai": object_schema({"error": object_schema(_OPENAI_ERROR)}),
    "anthropic": object_schema(
        {"type": {"const": "error"}, "error": object_schema({"type": TEXT, "message": TEXT})}, {"request_id": TEXT}
    ),
    "plain": object_schema(
        {"error": object_schema({"kind": TEXT, "message": TEXT}, {"param": TEXT}), "request_id": TEXT}
    ),
    "text": TEXT,
}


def routes(others: Iterable[Route]) -> Sequence[Route]:
    """The route of the document. The document lists this route too. It is made for the first request that asks for it:
    a start of the server need not wait for it."""

    @cache
    def document_bytes() -> bytes:
        return msgspec.json.encode(document(table))

    async def show(_: web.Request) -> web.Response:
        return web.Response(body=document_bytes(), content_type="application/json")

    own = Route("GET", "/openapi.json", show, "any", "This document.", answer={"type": "object"})
    table = (*others, own)
    return (own,)


def document(table: Sequence[Route]) -> JsonObject:
    """OpenAPI 3.1 for these routes."""
    types = list(dict.fromkeys(_types(table)))
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    schema_of = dict(zip(types, schemas, strict=True))
    paths: dict[str, JsonObject] = {}
    for route in table:
        path = _PARAMETER.sub(r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, schema_of)
    errors = {f"Error_{shape}": schema for shape, schema in ERROR_SCHEMAS.items()}
    whole: JsonObject = {
        "openapi": "3.1.0",
        "info": {"title": "Tailrace", "version": __version__},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": {**components, **errors},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }
    read_by_generators: JsonObject = _with_items(whole)
    return read_by_generators


def _with_items(value: Any) -> Any:
    """The same schemas as generators of clients can read them: they want the `items` of every array to be a schema.
    msgspec has none for a list of anything, and `false` behind the items of a tuple, whose length says the same."""
    match value:
        case dict():
            read = {key: _with_items(item) for key, item in value.items() if key != "items" or item is not False}
            if read.get("type") == "array":
                read.setdefault("items", {})
            return read
        case list() | tuple():
            return [_with_items(item) for item in value]
        case _:
            return value


def _tag(path: str) -> str:
    """What generated clients group by: the first word of the path. All files of the page are one group."""
    word = path.split("/")[1]
    return "page" if word in ("", "docs", "web") else word


def _types(table: Iterable[Route]) -> Iterator[Any]:
    for route in table:
        yield from (body for body in (route.body, route.answer) if body is not None and not isinstance(body, dict))


def _operation(route: Route, schema_of: dict[Any, JsonObject]) -> JsonObject:
    def schema(body: Body) -> JsonObject:
        return body if isinstance(body, dict) else schema_of[body]

    operation: JsonObject = {
        "operationId": _operation_id(route),
        "tags": [_tag(route.path)],
        "summary": route.description,
        "parameters": [*_path_parameters(route), *_query_parameters(route), *_header_parameters(route)],
        "responses": {str(route.status): _answer(route, schema)},
    }
    for status in sorted({*_ALWAYS, *route.errors} if route.access != "open" else set(route.errors)):
        operation["responses"].setdefault(str(status), _error(route, status))
    if route.body is not None:
        content = {"application/json": {"schema": schema(route.body)}}
        operation["requestBody"] = {"required": not needs_nothing(route.body), "content": content}
    operation["security"] = [] if route.access == "open" else [{"bearer": []}, {"header": []}]
    if route.access not in ("open", "any"):
        operation["x-scope"] = route.access
    return operation


def _operation_id(route: Route) -> str:
    words = re.findall(r"[A-Za-z0-9]+", _PARAMETER.sub(r"by_\1", route.path))
    return "_".join([route.method.lower(), *(words or ["root"])])


def _answer(route: Route, schema: Any) -> JsonObject:
    content: JsonObject = {}
    if route.answer is not None:
        content[route.media_type] = {"schema": schema(route.answer)}
    if route.streams:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    return {"description": route.description, "content": content}


def _error(route: Route, status: int) -> JsonObject:
    described: JsonObject = {"description": HTTPStatus(status).phrase}
    if status >= 400:
        shape = error_format(route.path)
        ref = {"$ref": _REF.format(name=f"Error_{shape}")}
        schema = ref if route.error is None else {"anyOf": [ref, route.error]}
        described["content"] = {"text/plain" if shape == "text" else "application/json": {"schema": schema}}
    return described


def _path_parameters(route: Route) -> Iterator[JsonObject]:
    for name in _PARAMETER.findall(route.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _query_parameters(route: Route) -> Iterator[JsonObject]:
    if route.query is None:
        return
    for field in msgspec.structs.fields(route.query):
        schema = msgspec.json.schema(field.type)
        yield {"name": field.encode_name, "in": "query", "required": field.required, "schema": schema}


def _header_parameters(route: Route) -> Iterator[JsonObject]:
    for name, text in route.headers.items():
        yield {"name": name, "in": "header", "description": text, "schema": {"type": "string"}}
