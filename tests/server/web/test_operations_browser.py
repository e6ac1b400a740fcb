"""The operator's page and the table of runs, in a browser."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from server.http_server import RunningServer
from server.web import axe, chromium
from server.web.chromium import Tab
from server.web.opened_page import SAVED_FILE, Launch, page
from tailrace.testing.provider import call, reply, say

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium: apt-get install chromium")
KEYS = """
server:
  drain_s: 0.05
  keys: [{name: boss, key_env: BOSS_KEY, scopes: [admin]}, {name: ci, key_env: CI_KEY, tokens_per_day: 100000}]
"""
ENV = {"BOSS_KEY": "boss-secret", "CI_KEY": "ci-secret"}
CI = {"Authorization": "Bearer ci-secret"}
AS_BOSS, AS_CI = (f"sessionStorage.setItem('tailrace.key', '{secret}')" for secret in ENV.values())
REFUSED = ("status-401", "status-401")
SCRIPT = (reply("It is up."), *REFUSED, reply(say("I will."), call("launch", {"what": "it"})), "stall@1")


async def four_runs(server: RunningServer) -> None:
    """One ended, one failed, one that waits for an approval, one whose provider is silent."""
    for question in ("Weigh the anchor.", "And now?"):
        _, run = await server.json("POST", "/runs", {"input": question}, headers=CI)
        await server.events(f"/runs/{run['id']}/stream?after=0", headers=CI)
    for question in ("Launch it.", "Wait."):
        await server.json("POST", "/runs", {"input": question}, headers=CI)


async def rows(tab: Tab, caption: str) -> list[list[str]]:
    """The cells of each row of a table."""
    table = f"document.querySelector('[role=group][aria-label=\"{caption}\"]')"
    found: list[list[str]] = await tab.value(
        f"[...{table}.querySelectorAll('tbody tr')].map((row) => [...row.cells].map((cell) => cell.innerText))"
    )
    return found


def rows_are(caption: str, count: int) -> str:
    return f"document.querySelectorAll('[aria-label={json.dumps(caption)}] tbody tr').length === {count}"


async def test_the_operator_sees_all_and_stops_a_run_and_no_one_else_does(devtools: str, tmp_path: Path) -> None:
    axe.source()
    kwargs = {"tools": (Launch(),), "config": KEYS, "env": ENV}
    async with page(devtools, tmp_path, *SCRIPT, **kwargs) as (server, browser, _):
        await four_runs(server)
        tab = await browser.tab(server.url + "/?ops", script=AS_BOSS)
        await tab.until(rows_are("Waiting approvals", 1))
        assert sorted(row[0:2] for row in await rows(tab, "Live runs")) == [
            ["asking", "Launch it."],
            ["running", "Wait."],
        ]
        providers = {row[0]: row[1:5] for row in await rows(tab, "Providers, last 15 minutes")}
        assert providers["other"][0:3] == ["failing", "1", "100 %"]
        [[ci, *_], _] = await rows(tab, "Keys today")
        assert ci == "ci"
        assert "of 100,000" in await tab.text("[aria-label='Keys today']")
        assert await tab.value("document.querySelector('.ops-bar-fill').style.width") != "0%"
        [failed] = await rows(tab, "Last errors")
        assert failed[1] == "And now?"
        told = await tab.text(".ops-status")
        assert told.endswith("1 waiting approval, 1 run failed in the last 15 minutes.")
        assert await axe.violations_everywhere(tab, "operations") == []
        for size in ((390, 844), (1280, 800)):
            await tab.size(*size)
            assert await tab.value("document.documentElement.scrollHeight <= innerHeight"), "one scroll bar, not two"
        assert [row[0:2] for row in await rows(tab, "Store, bus and platforms")][-1] == ["bus", "none"]
        await tab.press("Stop Wait.")
        await tab.until(rows_are("Live runs", 1))
        other = await browser.tab(server.url + "/?ops", script=AS_CI)
        await other.until_shown("scope 'admin'")
        assert await other.value("document.querySelector('.ops-body').hidden")
        assert tab.complaints == []


async def test_a_wait_and_a_rate_of_errors_are_told_as_what_they_are(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, config=KEYS, env=ENV) as (server, browser, _):
        tab = await browser.tab(server.url + "/?ops", script=AS_BOSS)
        await tab.until(rows_are("Providers, last 15 minutes", 2))
        fields = {"first_token_s": None, "problem": "", "problem_at": 0, "wait_until": 0}
        some = [
            {"name": name, "calls": calls, "failed": failed, **fields}
            for name, calls, failed in (("well", 10, 1), ("ill", 10, 2), ("new", 0, 0))
        ]
        some.append({**some[0], "name": "busy", "wait_until": 10**12})
        await tab.value(
            "window.fetch = ((ask) => async (...args) => { const answer = await ask(...args);"
            " return String(args[0]).endsWith('/ops')"
            f" ? Response.json({{...(await answer.json()), providers: {json.dumps(some)}}}) : answer; }})(fetch)"
        )
        await tab.until(rows_are("Providers, last 15 minutes", 4))
        tags = "[...document.querySelectorAll('[aria-label=\"Providers, last 15 minutes\"] .ops-tag')]"
        shown = await tab.value(f"{tags}.map((tag) => [tag.textContent, tag.dataset.tone ?? ''])")
        assert shown[:3] == [["answers", "good"], ["answers", "warn"], ["not asked", ""]]
        assert shown[3][0].startswith("asked us to wait ")
        assert tab.complaints == []


async def test_a_waiting_approval_leads_to_where_it_is_answered(devtools: str, tmp_path: Path) -> None:
    kwargs = {"tools": (Launch(),), "config": KEYS, "env": ENV}
    asks = reply(call("launch", {"what": "it"}))
    async with page(devtools, tmp_path, asks, reply("It flies."), **kwargs) as (server, browser, _):
        await server.json("POST", "/runs", {"input": "Launch it."}, headers=CI)
        tab = await browser.tab(server.url + "/?ops", script=AS_BOSS)
        await tab.until(rows_are("Waiting approvals", 1))
        link = "document.querySelector('[aria-label=\"Waiting approvals\"] a')"
        await tab.follow(tab.value(f"{link}.click()"))
        await tab.until("document.querySelector('#inspector .approval-card')?.checkVisibility()")
        await tab.press("Approve once")
        await tab.until("!document.querySelector('.approval-card')")
        await tab.until_shown("It flies.")
        assert tab.complaints == []


async def test_a_key_is_made_shown_once_and_revoked(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, config=KEYS, env=ENV) as (server, browser, _):
        tab = await browser.tab(server.url + "/?ops", script=AS_BOSS)
        await tab.until(rows_are("Keys today", 2))
        await tab.press("New key")
        found = await axe.violations_everywhere(tab, "new key")
        await tab.size(1280, 800)
        await tab.write("Name", "deploy")
        await tab.press("Make the key")
        await tab.until("document.querySelector('.ops-secret')")
        secret = await tab.value("document.querySelector('.ops-secret').value")
        assert found + await axe.violations_everywhere(tab, "the key") == []
        await tab.size(1280, 800)
        await tab.press("Close")
        await tab.until(rows_are("Keys today", 3))
        await tab.size(390, 844)
        wide = "(({scrollWidth, clientWidth}) => scrollWidth - clientWidth)(document.querySelector('.view'))"
        assert await tab.value(wide) == 0, "a table scrolls, the page does not"
        own = {"Authorization": f"Bearer {secret}"}
        assert (await server.json("GET", "/runs", headers=own))[0] == 200
        await tab.press("Revoke deploy")
        await tab.press("Revoke")
        await tab.until(rows_are("Keys today", 2))
        assert (await server.json("GET", "/runs", headers=own))[0] == 401
        assert tab.complaints == []


async def test_a_new_key_is_copied_by_a_button(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, config=KEYS, env=ENV) as (server, browser, _):
        tab = await browser.tab(server.url + "/?ops", script=AS_BOSS)
        await tab.until(rows_are("Keys today", 2))
        await tab.press("New key")
        await tab.write("Name", "deploy")
        await tab.press("Make the key")
        await tab.until("document.querySelector('.ops-secret')")
        # Over plain http there is no clipboard: a selection inside the dialog is copied.
        await tab.value("navigator.clipboard.writeText = () => Promise.reject(new Error())")
        await tab.value("document.execCommand = () => { window.copied = `${getSelection()}`; return true; }")
        await tab.press("Copy the key")
        await tab.until("document.querySelector('button[title=Copied]')")
        assert await tab.value("window.copied === document.querySelector('.ops-secret').value")
        assert tab.complaints == []


async def test_runs_are_found_by_what_is_typed_and_the_address_keeps_it(devtools: str, tmp_path: Path) -> None:
    axe.source()
    kwargs = {"tools": (Launch(),), "config": KEYS, "env": ENV}
    async with page(devtools, tmp_path, *SCRIPT, **kwargs) as (server, browser, _):
        await four_runs(server)
        tab = await browser.tab(server.url + "/?runs", script=AS_BOSS + SAVED_FILE)
        await tab.until(rows_are("Runs", 4))
        assert [row[2] for row in await rows(tab, "Runs")] == ["Wait.", "Launch it.", "And now?", "Weigh the anchor."]
        assert [row[6] == "–" for row in await rows(tab, "Runs")] == [False] * 4, "also of what goes on"
        assert await tab.text(".ops-status") == "4 runs."
        assert {row[8] for row in await rows(tab, "Runs")} == {"–"}, "the models have no price"
        assert await axe.violations_everywhere(tab, "runs") == []
        await tab.size(1280, 800)
        tops = "new Set([...document.querySelectorAll('.ops-filters > *')].map((each) => each.offsetTop)).size"
        assert await tab.value(tops) == 1, "Clear stands beside the filters"
        assert await tab.value("document.querySelector('thead').clientHeight") < 45, (
            "as high as the heads of other tables"
        )
        await tab.call("DOM.getDocument")
        await tab.value("document.querySelector('[name=q]').focus()")
        await tab.call("Input.insertText", text="ANCHOR")
        await tab.until(rows_are("Runs", 1))
        assert await tab.value("location.search") == "?runs=&q=ANCHOR" or "q=ANCHOR" in await tab.value(
            "location.search"
        )
        await tab.reload()
        await tab.until(rows_are("Runs", 1))
        await tab.press("CSV")
        await tab.until("window.savedName === 'runs.csv'")
        [saved] = csv.DictReader((await tab.value("saved.text()")).splitlines())
        assert (saved["input"], saved["status"], saved["key"]) == ("Weigh the anchor.", "completed", "ci")
        assert saved["cost_usd"] == "", "the model has no price"
        await tab.press("Clear")
        await tab.until(rows_are("Runs", 4))
        await tab.press("Tokens")
        await tab.until("document.querySelector('th[aria-sort]')?.textContent === 'Tokens'")
        await tab.until("document.querySelector('[aria-label=Runs] tbody tr').innerText.includes('Weigh the anchor.')")
        await tab.follow(tab.press("Weigh the anchor.", role="link"))
        await tab.until_shown("It is up.")
        assert tab.complaints == []
