"""`/docs`, the HTTP API to read, in a real browser. Skipped where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.web import chromium
from server.web.opened_page import page

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium: apt-get install chromium")
SHOWN = "[...document.querySelectorAll('.route:not([hidden])')].map((each) => each.id)"
UNFOLD = "(selector) => { document.querySelector(selector).open = true; }"


async def test_every_route_can_be_read_with_its_parameters_and_schemas(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path) as (server, browser, _):
        _, document = await server.json("GET", "/openapi.json")
        operations = [each for path in document["paths"].values() for each in path.values()]
        tab = await browser.tab(server.url + "/docs")
        await tab.until(f"{SHOWN}.length > 0")
        named = {each["operationId"] for each in operations if each["tags"] != ["page"]}
        assert set(await tab.value(SHOWN)) == named
        assert await tab.text(".ops-head h1") == "API"

        await tab.value(f"({UNFOLD})('#post_runs')")
        shown = await tab.text("#post_runs .operation")
        assert f"'{server.url}/runs'" in shown
        assert '{"input":"…"}' in shown, "an example has what a body needs"
        assert "Idempotency" not in shown
        for field in ("input", "idempotency_key", "busy", "previous_run"):
            assert field in shown
        assert '"interrupt" unless given' in shown
        await tab.value(f"({UNFOLD})('#post_runs .schema details')")
        await tab.until("document.querySelector('#post_runs .schema .schema')")  # the messages of `input`
        assert "role" in await tab.text("#post_runs .schema .schema")

        await tab.value(f"({UNFOLD})('#get_runs')")
        assert "limit" in await tab.text("#get_runs .api-parameters")
        assert "integer from 1 to 1000" in await tab.text("#get_runs .api-parameters")
        await tab.value(f"({UNFOLD})('#get_runs .api-answer')")
        await tab.until("document.querySelector('#get_runs .api-answer .schema')")
    assert tab.complaints == []


async def test_routes_are_found_by_their_words_at_any_width(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path) as (server, browser, _):
        tab = await browser.tab(server.url + "/docs")
        for width in (1280, 390):
            await tab.size(width, 844)
            await tab.go(server.url + "/docs")
            await tab.until(f"{SHOWN}.length > 20")
            assert await tab.value("document.querySelector('.view').scrollWidth <= innerWidth"), "nothing sticks out"
            await tab.call("DOM.focus", backendNodeId=await tab.find("searchbox", "Search routes"))
            await tab.call("Input.insertText", text="steer post")
            await tab.until(f"{SHOWN}.join() === 'post_runs_by_id_steer'")
            assert (await tab.text(".ops-status")).startswith("1 route ")
            groups = "[...document.querySelectorAll('.api-routes section')].filter((each) => each.checkVisibility())"
            assert await tab.value(f"{groups}.length") == 1
    assert tab.complaints == []


async def test_a_server_with_keys_asks_for_one_before_it_shows_its_routes(devtools: str, tmp_path: Path) -> None:
    env = {"TAILRACE_API_KEY": "a-key-of-some-length"}
    async with page(devtools, tmp_path, env=env) as (server, browser, _):
        tab = await browser.tab(server.url + "/docs")
        await tab.until("document.querySelector('#key-dialog').open")
        assert await tab.value(SHOWN) == []
        await tab.write("API key", "a-key-of-some-length")
        await tab.press("Continue")
        await tab.until(f"{SHOWN}.includes('post_runs')")
