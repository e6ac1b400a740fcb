"""`/openapi.json` says what there is, and what there is keeps to it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from yarl import URL

from server.http_server import RunningServer, raw, running_server
from tailrace.server.routes.openapi import ERROR_SCHEMAS
from tailrace.testing.clock import run_driven
from tailrace.testing.provider import reply

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


async def test_every_route_is_in_the_document_and_the_other_way_round(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        _, document = await server.json("GET", "/openapi.json")
        table = {(route.method.lower(), re.sub(r":[^}]+", "", route.path)) for route in server.pipeline.routes}
        router = {
            (route.method.lower(), re.sub(r":[^}]+", "", route.resource.canonical))
            for route in server.pipeline.router.routes()
            if route.resource is not None
            if route.method != "HEAD" or ("head", route.resource.canonical) in table  # the others are answered as GET
        }
    described = {(method, path) for path, operations in document["paths"].items() for method in operations}
    assert described == table == router
    assert ("get", "/openapi.json") in described


async def test_the_document_is_whole(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        _, document = await server.json("GET", "/openapi.json")
    assert document["openapi"] == "3.1.0"
    ids = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(set(ids)) == len(ids)
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    for reference in re.findall(r"'\$ref': '#/components/schemas/([^']+)'", str(document)):
        assert reference in document["components"]["schemas"]
    for path, operations in document["paths"].items():
        for operation in operations.values():
            named = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
            assert named == set(re.findall(r"\{(\w+)\}", path))


async def test_generators_of_clients_can_read_the_document(tmp_path: Path) -> None:
    """They stop at an array whose `items` are no schema, put each tag into a module of its own, and want a server."""
    async with running_server(tmp_path) as server:
        _, document = await server.json("GET", "/openapi.json")
    arrays = [each for each in parts_of(document) if each.get("type") == "array"]
    assert arrays
    assert [each for each in arrays if not isinstance(each.get("items"), dict)] == []
    tags = {path: operation["tags"] for path, each in document["paths"].items() for operation in each.values()}
    assert (tags["/runs/{id}"], tags["/v1/messages"], tags["/web/page.js"]) == (["runs"], ["v1"], ["page"])
    assert document["servers"] == [{"url": "/"}]
    assert document["paths"]["/runs"]["post"]["requestBody"]["required"] is True
    assert document["paths"]["/runs/{id}/retry"]["post"]["requestBody"]["required"] is False


def parts_of(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in the document."""
    if isinstance(value, dict):
        yield value
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from parts_of(part)


async def test_answers_keep_to_their_schemas(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("Hello."), "status-400") as server:
        _, document = await server.json("GET", "/openapi.json")
        run = await server.start(session="s")
        await server.app.agents.finished(run)
        failed = await server.start()
        await server.app.agents.finished(failed)
        asked = [
            ("get", "/healthz", "/healthz", None),
            ("get", "/readyz", "/readyz", None),
            ("get", "/v1/models", "/v1/models", None),
            ("get", "/v1/models/{id}", "/v1/models/faulty/anything", None),
            ("get", "/v1/models/{id}", "/v1/models/none/x", None),
            ("get", "/runs", "/runs", None),
            ("get", "/runs", "/runs?limit=0", None),
            ("get", "/runs/{id}", f"/runs/{run}?reasoning=true", None),
            ("get", "/runs/{id}", f"/runs/{failed}", None),
            ("get", "/runs/{id}", "/runs/none", None),
            ("post", "/runs", "/runs", {"input": "x"}),
            ("post", "/runs", "/runs", {"input": 5}),
            ("post", "/runs/{id}/stop", f"/runs/{run}/stop", None),
            ("post", "/runs/{id}/approval", f"/runs/{run}/approval", {"approval_id": "a", "decision": "once"}),
        ]
        for method, path, url, body in asked:
            status, answer = await server.json(method.upper(), url, body)
            check(document, method, path, status, answer)


def check(document: Any, method: str, path: str, status: int, answer: Any) -> None:
    responses = document["paths"][path][method]["responses"]
    assert str(status) in responses, f"{method} {path} answered {status}, which the document does not know"
    [media] = responses[str(status)]["content"].values()
    validator = Draft202012Validator({**media["schema"], "components": document["components"]})
    validator.validate(answer)


@pytest.mark.slow
@settings(
    max_examples=12,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(data=st.data())
def test_whatever_is_sent_no_answer_is_a_500(tmp_path: Path, data: st.DataObject) -> None:
    """From the document: every operation, with parameters and bodies near and far from what it asks for."""

    async def main() -> None:
        async with running_server(tmp_path, *["ok"] * 40) as server:
            _, document = await server.json("GET", "/openapi.json")
            for path, operations in document["paths"].items():
                for method, operation in operations.items():
                    await ask(server, document, method, path, operation, data)

    run_driven(main())


async def ask(
    server: RunningServer, document: Any, method: str, path: str, operation: Any, data: st.DataObject
) -> None:
    text = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=12)
    url = re.sub(r"\{\w+\}", lambda _: quote(data.draw(text.filter(lambda t: t not in ("", ".", ".."))), safe=""), path)
    query = {
        p["name"]: data.draw(text | st.integers().map(str))
        for p in operation["parameters"]
        if p["in"] == "query" and data.draw(st.booleans())
    }
    body = data.draw(JSON | near(document, operation)) if "requestBody" in operation else None
    address = URL(server.url + url, encoded=True)
    async with server.client.request(method, address, params=query, json=body) as response:
        if "text/event-stream" not in response.headers.get("Content-Type", ""):
            answer = await response.read()
            assert str(response.status) in {*operation["responses"], "404"}, (method, url, query, body, answer)
            assert response.status != 500
            if response.status >= 400 and method != "head":
                is_json = response.content_type == "application/json"
                error = await response.json() if is_json else answer.decode()
                described = operation["responses"].get(str(response.status), {}).get("content", {})
                shapes = [*ERROR_SCHEMAS.values(), *(own for media in described.values() for own in own_shapes(media))]
                assert any(Draft202012Validator(shape).is_valid(error) for shape in shapes)


def own_shapes(media: Any) -> list[Any]:
    """Those of the protocol that the route speaks."""
    return [shape for shape in media["schema"].get("anyOf", ()) if "$ref" not in shape]


def near(document: Any, operation: Any) -> st.SearchStrategy[Any]:
    """Objects with the right names and now and then the right types."""
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    names = list(schema.get("properties", {"x": {}}))
    return st.dictionaries(st.sampled_from(names), st.text(max_size=12) | JSON, max_size=len(names))


@pytest.mark.parametrize("hostile", ["%00", "%ff%fe", "..%2f..%2fetc", "%0d%0aX: y", "a" * 4000, "%F0%9F%98%80"])
async def test_no_path_is_an_internal_error(tmp_path: Path, hostile: str) -> None:
    async with running_server(tmp_path, store="sqlite:///x.db") as server:
        for path in (f"/runs/{hostile}", f"/runs/{hostile}/stream", f"/runs?before={hostile}&session={hostile}"):
            async with server.client.get(URL(server.url + path, encoded=True)) as response:
                assert response.status in (200, 400, 404), await response.text()


async def test_head_works_where_get_does(tmp_path: Path) -> None:
    answered = {}
    async with running_server(tmp_path) as server:
        for path in ("/", "/healthz", "/openapi.json", "/runs", "/sessions", "/runs/none", "/sessions/s/stream"):
            request = f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            head, _, body = (await raw(server.port(), request.encode())).partition(b"\r\n\r\n")
            answered[path] = int(head.split()[1]), body
            if path == "/runs":
                async with server.client.get(server.url + path) as got:
                    assert b"Content-Length: %d" % len(await got.read()) in head
    assert answered == {
        **dict.fromkeys(("/", "/healthz", "/openapi.json", "/runs", "/sessions"), (200, b"")),
        "/runs/none": (404, b""),
        "/sessions/s/stream": (405, b""),
    }
