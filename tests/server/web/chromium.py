"""A real browser over the DevTools protocol: pages that are used as people use them, by what they see and press.

One browser process serves many tests, in one window: another one costs a second of the processor. What a test stores it
stores for the address of its own server, and that is removed at its end. Waiting is the page's own: a promise that a
mutation of the document resolves.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-port=0"),
    *(
        "--disable-extensions",
        "--disable-default-apps",
        "--mute-audio",
        "--disable-breakpad",
        "--metrics-recording-only",
    ),
    # Below the address bar, which nobody sees here, stand two pages that each window of a browser would load and draw.
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,WebUIOmniboxFullPopup,AiModeOmniboxEntryPoint",
    "--force-prefers-reduced-motion",  # a mark that blinks draws the whole page sixty times a second
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # whatever a page names, nothing leaves this machine
)
PATIENCE_S = 30.0
_ANNOUNCED = "DevTools listening on "
# Resolves once the expression is true, looking again whenever the document changes.
_UNTIL = """new Promise((resolve) => {
  const look = () => { if (!(%s)) return false; observer.disconnect(); resolve(true); return true; };
  const observer = new MutationObserver(look);
  const all = { subtree: true, childList: true, characterData: true, attributes: true };
  if (!look()) observer.observe(document, all);
})"""
_FRAME = (
    "new Promise((next) => { requestAnimationFrame(() => next()); setTimeout(next, 100); })"  # a hidden page has none
)
# Ends the watch over the mouse. A page that a press has led to knows nothing of it.
_PRESSED = "globalThis.pressed !== false && (globalThis.pressing?.abort(), true)"
# Resolves with the middle of the element once it stands there in two frames and is what a click would hit; with nothing
# once it is gone. A press that lands elsewhere reaches no one; `pressed` is true once a click has reached the element.
_STANDING = """async function () {
  const own = [this, ...(this.labels ?? [])];
  const guard = (event) => {
    if (!event.isTrusted) return;
    const hit = own.some((node) => event.composedPath().includes(node));
    if (event.type === "click") globalThis.pressed = hit;
    if (hit || !this.isConnected) return;
    event.preventDefault();
    event.stopImmediatePropagation();
  };
  const frame = () => new Promise((next) => { requestAnimationFrame(next); setTimeout(next, 100); });
  this.scrollIntoViewIfNeeded();
  for (let before = [];;) {
    await frame();
    if (!this.isConnected) return null;
    const box = this.getClientRects()[0];
    const now = box ? [box.left + box.width / 2, box.top + box.height / 2] : [];
    if (now.length && now[0] === before[0] && now[1] === before[1]) {
      const hit = this.getRootNode().elementFromPoint(...now);
      if (own.some((node) => node.contains(hit))) {
        globalThis.pressed = false;
        globalThis.pressing?.abort();
        globalThis.pressing = new AbortController();
        const options = { capture: true, signal: globalThis.pressing.signal };
        for (const name of ["mousedown", "mouseup", "click"]) addEventListener(name, guard, options);
        return now;
      }
      if (!hit) this.scrollIntoViewIfNeeded();
    }
    before = now;
  }
}"""


@contextmanager
def started(directory: Path) -> Iterator[str]:
    """A browser process, and the address of its DevTools."""
    assert PROGRAM is not None
    browser = subprocess.Popen(
        [PROGRAM, *FLAGS, f"--user-data-dir={directory}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # its helpers end with it
    )
    assert browser.stderr is not None
    said: list[str] = []
    try:
        for line in browser.stderr:
            said.append(line)
            if line.startswith(_ANNOUNCED):
                break
        else:
            raise RuntimeError("the browser did not start:\n" + "".join(said))
        rest = threading.Thread(target=browser.stderr.read, daemon=True)  # a full pipe would hold it up
        rest.start()
        yield line.removeprefix(_ANNOUNCED).strip()
    finally:
        os.killpg(browser.pid, signal.SIGKILL)
        browser.wait()
        browser.stderr.close()


class Browser:
    """The tabs of one test."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._tabs: dict[str, Tab] = {}
        self._targets: list[str] = []
        self.origins: set[str] = set()

    async def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        number = next(self._ids)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": params}
        await self._socket.send_json({**message, "sessionId": session} if session else message)
        async with asyncio.timeout(PATIENCE_S):
            result: dict[str, Any] = await answer
        return result

    async def listen(self) -> None:
        async for message in self._socket:
            said = json.loads(message.data)
            if (answer := self._answers.pop(said.get("id", 0), None)) is not None:
                if answer.done():
                    continue
                if "error" in said:
                    answer.set_exception(RuntimeError(said["error"]["message"]))
                else:
                    answer.set_result(said["result"])
            elif (tab := self._tabs.get(said.get("sessionId", ""))) is not None:
                tab.hear(said["method"], said["params"])

    async def tab(self, url: str, *, script: str = "", window: bool = False) -> Tab:
        """A new tab that has loaded this page. `script` runs in every page of it, before the page's own. `window`: in a
        window of its own, which is in view beside the others."""
        target = await self.call("Target.createTarget", url="about:blank", newWindow=window)
        self._targets.append(target["targetId"])
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        tab = self._tabs[attached["sessionId"]] = Tab(self, attached["sessionId"])
        for domain in ("Page", "Runtime", "Network", "Log"):  # Accessibility answers without, and costs each change
            await tab.call(f"{domain}.enable")
        if script:
            await tab.call("Page.addScriptToEvaluateOnNewDocument", source=script)
        await tab.go(url)
        return tab

    async def close(self) -> None:
        for origin in self.origins:  # the next server may get the same port
            await next(iter(self._tabs.values())).call(
                "Storage.clearDataForOrigin", origin=origin, storageTypes="local_storage,cookies,cache_storage"
            )
        for target in self._targets:
            await self.call("Target.closeTarget", targetId=target)


class Tab:
    """One page. `requests` are the addresses it asked for, `complaints` what went wrong in it, `dialogs` what scripts
    have tried to say."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self._loaded = asyncio.Event()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.dialogs: list[str] = []

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        return await self._browser.call(method, self._session, **params)

    def hear(self, method: str, params: dict[str, Any]) -> None:
        match method:
            case "Page.loadEventFired":
                self._loaded.set()
            case "Page.frameNavigated" if params.get("type") == "BackForwardCacheRestore":  # it is not loaded again
                self._loaded.set()
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(params["exceptionDetails"]))
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.complaints.append(params["entry"]["text"])
            case "Page.javascriptDialogOpening":
                self.dialogs.append(params["message"])
            case _:
                pass

    # ── where it is ──────────────────────────────────────────────────────────────────────────────────────────

    async def go(self, url: str) -> None:
        self._loaded.clear()
        if url.startswith("http"):
            self._browser.origins.add("/".join(url.split("/")[:3]))
        await self.call("Page.navigate", url=url)
        await self._load()

    async def reload(self) -> None:
        self._loaded.clear()
        await self.call("Page.reload")
        await self._load()

    async def follow(self, action: Coroutine[Any, Any, object]) -> None:
        """Does what leads to another page, and returns when that page has loaded."""
        self._loaded.clear()
        await action
        await self._load()

    async def _load(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self._loaded.wait()

    # ── what it shows ────────────────────────────────────────────────────────────────────────────────────────

    async def value(self, expression: str) -> Any:
        """What the expression is in the page, promises awaited."""
        answer = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    async def until(self, expression: str) -> None:
        """Returns once the expression is true in the page."""
        try:
            await self.value(_UNTIL % expression)
        except TimeoutError:
            shown = await self.value("document.body.innerText")
            raise AssertionError(f"never true: {expression}\nthe page shows:\n{shown}") from None

    async def drawn(self) -> None:
        """Returns once what is in the document is on the screen. Before that `innerText` leaves out the parts that the
        browser lays out where they are in view (`content-visibility`)."""
        for _ in range(2):  # which parts are in view is found out at the end of the first
            await self.value(_FRAME)

    async def until_shown(self, text: str) -> None:
        await self.until(f"document.body.innerText.includes({json.dumps(text)})")

    async def size(self, width: int, height: int) -> None:
        """The window of a phone is 390 by 844, of a desktop 1280 by 800."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def colours(self, scheme: str) -> None:
        """`light` or `dark`."""
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def picture(self, kind: str = "png") -> bytes:
        """What is in the window: `png`, `jpeg` or `webp`."""
        return base64.b64decode((await self.call("Page.captureScreenshot", format=kind))["data"])

    async def text(self, selector: str = "body") -> str:
        shown: str = await self.value(f"document.querySelector({json.dumps(selector)}).innerText")
        return shown

    # ── what people do ───────────────────────────────────────────────────────────────────────────────────────

    async def find(self, role: str, name: str) -> int:
        """The one element that has this role and name for whoever cannot see it; its backend id."""
        nodes = await self._named(role, name)
        assert len(nodes) == 1, f"{len(nodes)} elements are a {role} named {name!r}"
        return nodes[0]

    async def _named(self, role: str, name: str) -> list[int]:
        root = (await self.call("DOM.getDocument"))["root"]["backendNodeId"]
        found = await self.call("Accessibility.queryAXTree", backendNodeId=root, accessibleName=name, role=role)
        return [node["backendDOMNodeId"] for node in found["nodes"] if not node["ignored"]]

    async def press(self, name: str, role: str = "button") -> None:
        """A click of the mouse in the middle of a button, wherever it is on the screen, once it is there and stands
        still: Chromium names elements a little after it draws them. Another one where it has moved away under the
        mouse, and where Chromium has dropped the click: what lay under the first half of it was drawn anew."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not (await self._named(role, name) and await self._pressed(await self.find(role, name))):
                    await self.value(_FRAME)
        except TimeoutError:
            raise AssertionError(f"the {role} {name!r} never stands still where the mouse can reach it") from None

    async def _pressed(self, node: int) -> bool:
        try:
            element = (await self.call("DOM.resolveNode", backendNodeId=node))["object"]["objectId"]
        except RuntimeError:  # it is gone
            return False
        standing = {"functionDeclaration": _STANDING, "awaitPromise": True, "returnByValue": True}
        place = (await self.call("Runtime.callFunctionOn", objectId=element, **standing))["result"].get("value")
        if place is None:
            return False
        click = {"button": "left", "clickCount": 1, "x": place[0], "y": place[1]}
        kinds = ("mousePressed", "mouseReleased")  # one right after the other: the page may be growing
        await asyncio.gather(*(self.call("Input.dispatchMouseEvent", type=kind, **click) for kind in kinds))
        try:
            if not await self.value(_PRESSED):
                await self.value(_FRAME)  # the event may come after the answer to the call
            return bool(await self.value(_PRESSED))
        except RuntimeError:  # it led to another page
            return True

    async def write(self, name: str, text: str) -> None:
        """Types into the text box of this name."""
        await self.call("DOM.focus", backendNodeId=await self.find("textbox", name))
        await self.call("Input.insertText", text=text)

    async def enter(self) -> None:
        await self.key("Enter", 13, text="\r")

    async def key(self, name: str, code: int, **more: Any) -> None:
        """One press of a key; `code` is its number for Windows."""
        key = {"key": name, "code": name, "windowsVirtualKeyCode": code, **more}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **key)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **key)

    async def send(self, text: str) -> None:
        await self.write("Message", text)
        await self.press("Send")


@asynccontextmanager
async def browsing(devtools: str) -> AsyncGenerator[Browser, None]:
    """Tabs in the browser at this address, and no trace of them afterwards."""
    async with aiohttp.ClientSession() as client, client.ws_connect(devtools, max_msg_size=0) as socket:
        browser = Browser(socket)
        listening = asyncio.ensure_future(browser.listen())
        try:
            yield browser
            await browser.close()
        finally:
            listening.cancel()
            await asyncio.wait({listening})
