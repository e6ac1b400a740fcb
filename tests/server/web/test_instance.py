"""An instance of a sequence on the page: the graph lights up, each step streams in its card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from server.http_server import RunningServer, running_server
from server.web import chromium
from server.web.chromium import browsing
from server.web.opened_page import Launch, in_page
from tailrace.testing.provider import Reply, Scenario, call, reply

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium: apt-get install chromium")

COLOURED = "getComputedStyle(document.querySelector('.hljs-comment')).color !== getComputedStyle(document.body).color"


def ask(step: str, prompt: str, **more: object) -> dict[str, Any]:
    params = {"provider": "faulty", "model": "ok", "messages": [{"role": "user", "content": prompt}], "stream": True}
    return {"type": "step", "id": step, "handler": "llm_call", "params": {**params, **more}}


SEQUENCE = {
    "name": "postcards",
    "blocks": [
        {
            "type": "parallel",
            "id": "work",
            "branches": [
                [
                    {
                        "type": "for_each",
                        "id": "each",
                        "collection": ["Bern", "Thun"],
                        "item_var": "city",
                        "body": [ask("card", "?")],
                        "max_concurrency": 1,
                    }
                ],
                [{"type": "step", "id": "gate", "handler": "wait_signal", "params": {"signal": "go"}}],
            ],
        },
        ask("summary", "Sum up."),
    ],
}


async def started(server: RunningServer, sequence: dict[str, Any], **body: object) -> str:
    async with server.client.post(server.url + "/sequences", json=sequence) as response:
        answer = await response.json()
        assert response.status == 201, answer
    async with server.client.post(server.url + "/instances", json={"sequence_id": answer["id"], **body}) as response:
        assert response.status == 201, await response.text()
        return str((await response.json())["id"])


CARDS = "[...document.querySelectorAll('.graph-step')]"
SHOWN = f"{CARDS}.filter((card) => card.checkVisibility()).map((card) => card.ariaLabel)"
HEADS = "[...document.querySelectorAll('.graph-iteration-key')].map((head) => head.textContent)"
ROWS = "[...document.querySelectorAll('.graph-row')]"


async def test_the_steps_stand_at_the_left_and_the_chosen_one_fits_the_screen_beside_them(
    devtools: str, tmp_path: Path
) -> None:
    long = reply("A card. " + "The river is green and the bridge is old. " * 60)
    async with running_server(tmp_path, long, long, reply("All is sent.")) as server, browsing(devtools) as browser:
        instance = await started(server, SEQUENCE)
        tab = await browser.tab(f"{server.url}/?instance={instance}")
        await tab.size(1280, 800)
        await tab.until_shown("2 of 2 done")
        await tab.value(f"{ROWS}.find((row) => row.textContent.includes('card')).click()")
        await tab.until("document.querySelector('.graph-step-time').textContent")
        assert await tab.value(SHOWN) == ["step card"]
        left = (
            "[...document.querySelectorAll('.graph-iteration')].slice(0, 2).map((one) => one.getBoundingClientRect())"
        )
        first, second = await tab.value(f"{left}.map(({{left, top}}) => [left, top])")
        assert first[1] == second[1], "the iterations stand side by side"
        assert first[0] < second[0]
        root = "document.querySelector('#instance')"
        assert await tab.value(f"{root}.scrollHeight <= {root}.clientHeight"), "its panes scroll, not the page"
        async with server.client.post(f"{server.url}/instances/{instance}/signals", json={"signal": "go"}) as response:
            assert response.status == 200
        await tab.until("document.querySelector('[aria-label=\"step summary\"]').dataset.state === 'finished'")
        assert await tab.value(SHOWN) == ["step card"], "what a person has chosen stays"
        assert tab.complaints == []


async def test_the_graph_lights_up_and_steps_stream(devtools: str, tmp_path: Path) -> None:
    words: list[Reply | Scenario] = [
        reply("**A card** from Bern.\n\n```python\nx = 1  # one\n```"),
        reply("A card from Thun."),
        Scenario(reply=reply("All is sent."), pace_s=0.05),
    ]
    async with running_server(tmp_path, *words) as server, browsing(devtools) as browser:
        instance = await started(server, SEQUENCE)
        tab = await browser.tab(f"{server.url}/?instance={instance}")
        await tab.until_shown("2 of 2 done")
        card = "document.querySelector('[aria-label=\"step card\"]')"
        assert await tab.value(f"{card}.dataset.state") == "finished"
        assert await tab.value(f"{card}.querySelector('strong').textContent") == "A card"
        assert await tab.value("document.querySelector('[aria-label=\"step summary\"]').dataset.state") == "pending"
        assert await tab.value(COLOURED), "code is coloured as in a conversation"
        assert await tab.text(".graph-iteration-key") == "iteration 1"
        assert await tab.value("document.querySelectorAll('.instance-bar .inbox-badge').length") == 1
        assert await tab.value("document.querySelector('[aria-label=\"step gate\"]').dataset.state") == "running"
        gate = "[...document.querySelectorAll('.graph-row')].find((row) => row.textContent.includes('gate'))"
        assert await tab.value(f"{gate}.querySelector('.graph-step-state').textContent") == "waiting", (
            "it works at nothing"
        )
        await tab.press("Pause")
        await tab.until("document.querySelector('.instance-badge').textContent === 'paused'")
        await tab.press("Resume")
        await tab.until("document.querySelector('.instance-badge').textContent !== 'paused'")
        signal = {"signal": "go"}
        async with server.client.post(f"{server.url}/instances/{instance}/signals", json=signal) as response:
            assert response.status == 200
        await tab.until("document.querySelector('.instance-badge').textContent === 'completed'")
        await tab.until_shown("All is sent.")
        assert tab.complaints == []
        await tab.reload()
        await tab.until_shown("All is sent.")
        assert await tab.value("document.querySelectorAll('.graph-iteration').length") == 4, "nothing is doubled"


async def test_iterations_stand_under_the_names_of_their_items(devtools: str, tmp_path: Path) -> None:
    gate = {"type": "step", "id": "gate", "handler": "wait_signal", "params": {"signal": "{{part}}"}}
    each = {"type": "for_each", "id": "each", "collection": "{{input.parts}}", "item_var": "part", "body": [gate]}
    async with running_server(tmp_path) as server, browsing(devtools) as browser:
        flow = {"name": "survey", "blocks": [{**each, "max_concurrency": 2}]}
        instance = await started(server, flow, input={"parts": ["weirs", "mills", "locks"]})
        tab = await browser.tab(f"{server.url}/?instance={instance}")
        await tab.until_shown("0 of 3 done")
        for done, part in enumerate(("mills", "locks", "weirs"), 1):
            signal = {"signal": part}
            async with server.client.post(f"{server.url}/instances/{instance}/signals", json=signal) as response:
                assert response.status == 200
            await tab.until_shown(f"{done} of 3 done")
        await tab.reload()
        await tab.until_shown("3 of 3 done")
        assert await tab.value(HEADS) == ["1 · weirs", "2 · mills", "3 · locks"]
        assert tab.complaints == []


LATE_FIRST = """
  const { GraphView } = await import("/web/instance/graph_view.js");
  const title = `for each part of ${args[0]}`;
  const lanes = [{ title: "", nodes: ["each.one"] }];
  const each = { id: "each", type: "for_each", name: "each", title, lanes };
  const one = { id: "each.one", type: "step", name: "one", title: "", parent: "each", handler: "http", lanes: [] };
  const find = { parts: [{ long: "x" }, " ", 7] };
  const view = new GraphView({ top: ["each"], nodes: [each, one] }, { input: {}, outputs: { find } });
  const outputs = Object.fromEntries([10, 2, 0, 1].map((at) => [`each[${at}].one`, at]));
  view.apply({ type: "snapshot", outputs });
  document.body.append(view.node);
  return [document.querySelector(".graph-step-state").textContent, %s];
"""


@pytest.mark.parametrize(
    ("collection", "state", "third"),
    [
        ("steps.find.output.parts", "4 of 4 done", "3 · 7"),
        ("12 items", "4 of 12 done", "iteration 3"),
        ("input.parts ?? []", "4 of 4 done", "iteration 3"),
    ],
)
async def test_iterations_that_end_in_any_order_stand_by_their_number(
    devtools: str, tmp_path: Path, collection: str, state: str, third: str
) -> None:
    shown = await in_page(devtools, tmp_path, LATE_FIRST % HEADS, collection)
    assert shown == [state, ["iteration 1", "iteration 2", third, "iteration 11"]]


async def test_a_step_that_waits_for_a_signal_is_answered_on_the_page(devtools: str, tmp_path: Path) -> None:
    gate = {"type": "step", "id": "gate", "handler": "wait_signal", "params": {"signal": "approve"}}
    flow = {"name": "gated", "blocks": [gate, ask("last", "{{steps.gate.output.payload.who}}?")]}
    box = "Payload: a JSON object, or nothing"
    async with running_server(tmp_path, reply("All is sent.")) as server, browsing(devtools) as browser:
        instance = await started(server, flow)
        tab = await browser.tab(f"{server.url}/?instance={instance}")
        await tab.until_shown("Send approve")
        await tab.write(box, "[1")
        await tab.press("Send approve")
        await tab.until("document.querySelector('.graph-step .refused').textContent")
        told = await tab.text(".graph-step .refused")
        assert told == "Nothing was sent: the payload is not a JSON object."
        await tab.value("document.querySelector('.graph-step input').value = ''")
        await tab.write(box, '{"who": "Ada"}')
        await tab.press("Send approve")
        await tab.until_shown("All is sent.")
        assert not await tab.value("document.querySelector('.graph-step form').checkVisibility()"), "it waits no more"
        async with server.client.get(f"{server.url}/instances/{instance}") as response:
            assert (await response.json())["outputs"]["gate"]["payload"] == {"who": "Ada"}
        assert tab.complaints == []


async def test_a_long_list_of_steps_on_a_phone_is_shaded_where_it_is_cut(devtools: str, tmp_path: Path) -> None:
    waits = [
        {"type": "step", "id": f"wait_{at}", "handler": "wait_signal", "params": {"signal": "go"}} for at in range(20)
    ]
    async with running_server(tmp_path) as server, browsing(devtools) as browser:
        instance = await started(server, {"name": "long", "blocks": waits})
        tab = await browser.tab(f"{server.url}/?instance={instance}")
        await tab.size(390, 844)
        await tab.until_shown("wait_19")
        steps = "document.querySelector('.graph-overview')"
        assert await tab.value(f"{steps}.scrollHeight > {steps}.clientHeight")
        shade, attachment = await tab.value(
            f"((style) => [style.backgroundImage, style.backgroundAttachment])(getComputedStyle({steps}))"
        )
        assert shade.count("linear-gradient") == 2
        assert attachment == "local, scroll", "what hides the shade at the end moves with the list"


async def test_a_route_that_was_not_taken_is_not_pending_once_all_is_done(devtools: str, tmp_path: Path) -> None:
    routes = [{"condition": "{{input.far}}", "blocks": [ask("by_train", "?")]}]
    way = {"type": "router", "id": "way", "routes": routes, "default": []}
    safe = {"type": "try_catch", "id": "safe", "try_block": [ask("walk", "?")], "catch_block": [ask("rest", "?")]}
    async with running_server(tmp_path, reply("We are there.")) as server, browsing(devtools) as browser:
        instance = await started(server, {"name": "journey", "blocks": [way, safe]}, input={"far": False})
        tab = await browser.tab(f"{server.url}/?instance={instance}")
        states = f"{ROWS}.map((row) => row.querySelector('.graph-step-state').textContent)"
        await tab.until(f"`${{{states}}}` === 'not taken,finished,not taken'")
        assert await tab.value("document.querySelector('.graph-overview pre').textContent") == '{\n  "far": false\n}', (
            "what it was given"
        )
        titles = "[...document.querySelectorAll('.graph-lane-title')].map((title) => title.textContent)"
        assert await tab.value(titles) == ["input.far", "try", "catch"], "nothing is drawn of what is not defined"


async def test_a_step_of_a_paused_instance_does_not_run(devtools: str, tmp_path: Path) -> None:
    flow = {"name": "slow", "blocks": [ask("only", "?")]}
    state = "document.querySelector('.graph-row .graph-step-state')?.textContent"
    async with running_server(tmp_path, "stall@1", reply("At last.")) as server, browsing(devtools) as browser:
        tab = await browser.tab(f"{server.url}/?instance={await started(server, flow)}")
        await tab.until(f"{state} === 'running'")
        await tab.press("Pause")
        await tab.until("document.querySelector('.instance-badge').textContent === 'paused'")
        assert await tab.value(state) == "paused"
        await tab.reload()
        await tab.until("document.querySelector('.instance-badge')?.textContent === 'paused'")
        await tab.until(f"{state} === 'paused'")
        await tab.press("Resume")
        await tab.until_shown("At last.")
        await tab.until(f"{state} === 'finished'")


async def test_the_step_that_runs_is_chosen_and_not_one_that_has_ended(devtools: str, tmp_path: Path) -> None:
    script = """
      const { GraphView } = await import("/web/instance/graph_view.js");
      const step = (id) => ({ id, type: "step", name: id, title: "", parent: "", handler: "llm_call", lanes: [] });
      const nodes = ["slow", "quick"].map(step);
      const opened = (...events) => {
        const view = new GraphView({ top: ["slow", "quick"], nodes }, { input: {}, outputs: {} });
        events.forEach((event) => view.apply(event));
        return view.chosen.node.ariaLabel;
      };
      const began = (block_id) => ({ type: "step", state: "started", block_id });
      const ended = (block_id) => ({ type: "output", block_id, output: 1 });
      return [
        opened(began("slow"), began("quick"), ended("quick")),
        opened({ type: "snapshot", texts: { slow: "On" }, outputs: { quick: 1 } }),
        opened(began("slow"), began("quick"), ended("slow")),
        opened(began("slow"), ended("slow"), began("quick"), ended("quick")),
      ];
    """
    shown = await in_page(devtools, tmp_path, script)
    assert shown == ["step slow", "step slow", "step quick", "step quick"]


async def test_the_run_of_an_agent_is_answered_in_its_step_and_linked_from_there(devtools: str, tmp_path: Path) -> None:
    fly = {"type": "step", "id": "fly", "handler": "agent", "params": {"prompt": "Launch it, please."}}
    each = {"type": "for_each", "id": "each", "collection": [1, 2], "item_var": "n", "body": [fly]}
    words = [reply(call("launch", {"what": "it"})), reply("It flies."), reply("Again.")]
    async with running_server(tmp_path, *words, tools=(Launch(),)) as server, browsing(devtools) as browser:
        instance = await started(server, {"name": "flight", "blocks": [{**each, "max_concurrency": 1}]})
        tab = await browser.tab(f"{server.url}/?instance={instance}")
        asked = "document.querySelector('.graph-iteration[data-key=\"[0]\"] .approval-card')"
        await tab.until(f"{asked}?.checkVisibility()")
        assert await tab.text(".graph-prompt") == "Launch it, please.", "what the step was to do"
        row = "document.querySelector('.graph-row .graph-step-state').textContent"
        await tab.until(f"{row} === 'asking'")
        (question,) = (await server.json("GET", "/approvals"))[1]["data"]
        assert (question["instance_id"], question["block_id"]) == (instance, "each[0].fly")
        way = "document.querySelector('.graph-iteration a').getAttribute('href')"
        assert await tab.value(way) == f"/?run={question['run_id']}"
        await tab.value("document.querySelector('.inbox-badge').click()")
        assert await tab.value("document.querySelectorAll('#inbox .approval-card').length") == 1
        await tab.press("Close")
        await tab.until(asked)
        await tab.press("Approve once")
        await tab.until_shown("It flies.")
        await tab.until_shown("2 of 2 done")
        await tab.until("/ · .+ in, .+ out$/.test(document.querySelector('.instance-facts').textContent)")
        assert await tab.value(f"{asked} === null")
        assert await tab.value(way) == f"/?run={question['run_id']}"
        assert tab.complaints == []


async def test_a_failure_is_told_and_retried_on_the_page(devtools: str, tmp_path: Path) -> None:
    flow = {"name": "one", "blocks": [{**ask("only", "?"), "retry": {"max_attempts": 1}}]}
    async with running_server(tmp_path, "status-401", reply("Now it works.")) as server, browsing(devtools) as browser:
        tab = await browser.tab(f"{server.url}/?instance={await started(server, flow)}")
        await tab.until("document.querySelector('#instance [role=alert]')?.textContent.includes('Incorrect API key')")
        await tab.follow(tab.press("Retry"))
        await tab.until_shown("Now it works.")
        await tab.until("document.querySelector('.instance-badge').textContent === 'completed'")


async def test_what_was_used_is_shown_by_key_model_and_day(devtools: str, tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, browsing(devtools) as browser:
        tab = await browser.tab(f"{server.url}/?usage")
        await tab.until_shown("Nothing was used today.")
        body = {"model": "faulty/ok", "messages": [{"role": "user", "content": "Go."}]}
        async with server.client.post(server.url + "/v1/chat/completions", json=body) as response:
            assert response.status == 200
        await tab.go(f"{server.url}/?usage=week")
        await tab.until_shown("By day")
        cells = await tab.value("[...document.querySelectorAll('#usage tbody th')].map((cell) => cell.textContent)")
        assert cells[:2] == ["local", "faulty/ok"]
        assert await tab.text("#usage tbody td") == "1"
        assert "of models that have none" in await tab.text(".ops-status")
        padding = "getComputedStyle(document.querySelector('#usage tbody th')).paddingLeft"
        assert await tab.value(padding) == "16px", "the first column keeps off its border"
        await tab.follow(tab.press("Tailrace", "link"))  # the way back, whose mark is not part of its name
        await tab.until_shown("How can I help?")
        assert tab.complaints == []


@pytest.mark.parametrize("kind", ["run", "instance"])
async def test_an_instance_or_a_run_that_is_not_there_is_told_with_a_way_back(
    devtools: str, tmp_path: Path, kind: str
) -> None:
    alert = "document.querySelector('main [role=alert].not-shown')"
    async with running_server(tmp_path) as server, browsing(devtools) as browser:
        tab = await browser.tab(f"{server.url}/?{kind}=nope")
        await tab.until(alert)
        told = f"There is no {kind} “nope” here: it was deleted, or its address is wrong. To the conversations"
        shown = await tab.text("body > main")
        assert shown.split() == ["Tailrace", "Runs", *told.split()], "no empty timeline, badge or box"
        assert await tab.value("document.title") == f"No such {kind} · Tailrace"
        await tab.go(f"{server.url}/?{kind}={'x' * 200}")
        await tab.until(alert)
        assert "x" * 60 + "…" in await tab.text("main .not-shown")
        await tab.size(390, 844)
        assert await tab.value("document.documentElement.scrollWidth <= innerWidth")
        await tab.follow(tab.press("To the conversations", "link"))
        await tab.until_shown("How can I help?")


@pytest.mark.parametrize("kind", ["run", "instance"])
async def test_a_run_that_the_server_cannot_show_now_is_tried_again(devtools: str, tmp_path: Path, kind: str) -> None:
    async with running_server(tmp_path) as server, browsing(devtools) as browser:
        tab = await browser.tab(f"{server.url}/?usage")
        server.pipeline.begin_drain()
        await tab.go(f"{server.url}/?{kind}=nope")
        await tab.until("document.querySelector('.not-shown')?.textContent.startsWith('the server is stopping')")
        server.pipeline._draining.clear()
        await tab.follow(tab.press("Try again", "link"))
        await tab.until(f"document.querySelector('.not-shown')?.textContent.startsWith('There is no {kind}')")
