"""Fetches a page of the public web and shows the model its text."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta

from tailrace.ports import ToolContext, ToolOutcome
from tailrace.tools.typed import Arguments, TypedTool, clipped, failed

if TYPE_CHECKING:
    from tailrace.tools.web.page_fetch import Page, Resolve

MAX_BYTES: Final = 5 * 1024 * 1024
MAX_CHARS: Final = 50_000
MAX_ERROR_CHARS: Final = 2000
TIMEOUT_S: Final = 30.0


class WebFetchArgs(Arguments):
    url: Annotated[str, Meta(min_length=1, description="An http:// or https:// address.")]
    offset: Annotated[int, Meta(ge=0, description="Skip this many characters of a long text.")] = 0


class WebFetch(TypedTool[WebFetchArgs]):
    name = "web_fetch"
    description = "Fetch a web page and return its text; links are kept. Reads HTML, plain text and JSON."
    Args = WebFetchArgs
    repeatable = True
    parallel = True

    def __init__(
        self,
        *,
        allow_hosts: Iterable[str] = (),
        resolve: Resolve | None = None,
        timeout_s: float = TIMEOUT_S,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """`allow_hosts`: names or addresses that may be reached although they are not public."""
        super().__init__()
        self._allow = frozenset(host.lower().strip("[]") for host in allow_hosts)
        self._resolve = resolve
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes

    async def execute(self, args: WebFetchArgs, context: ToolContext) -> ToolOutcome:
        # aiohttp would take a quarter of the time in which a command starts, and most agents fetch nothing
        from tailrace.tools.web.page_fetch import FETCH_ERRORS, FetchRefused, PageFetch

        pages = PageFetch(self._allow, self._resolve, self._max_bytes)
        try:
            async with asyncio.timeout(self._timeout_s):
                page = await pages.fetch(args.url, context.progress)
        except TimeoutError:
            return failed(f"{args.url} took longer than {self._timeout_s:g} s")
        except FetchRefused as exc:
            return failed(str(exc))
        except FETCH_ERRORS as exc:
            return failed(f"{args.url} cannot be fetched: {str(exc) or type(exc).__name__}")
        return _shown(page, args.offset)


def _shown(page: Page, offset: int) -> ToolOutcome:
    ok = page.status < 400
    head = page.url if ok else f"{page.url}: HTTP {page.status} {page.reason}".rstrip()
    if page.title:
        head += f"\nTitle: {page.title}"
    text = page.text if ok else clipped(page.text, MAX_ERROR_CHARS)
    end = offset + MAX_CHARS
    body = text[offset:end] or ("(there is no text)" if not text else f"(the text ends at {len(text)} characters)")
    if len(text) > end:
        body += f"\n… {len(text) - end} more characters; go on with offset={end}"
    elif page.cut:
        body += "\n… the page is longer than what was read of it"
    return ToolOutcome(f"{head}\n\n{body}", ok)
