"""Pages of stored entries, shared by the viewers that read the same part of a log at about the same time.

Owns which pages are kept. A page that is being read is read once, for however many viewers.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from tailrace.journal.live_tail import PAGE_BYTES
from tailrace.ports import LogPage

MAX_PAGES = 64
MAX_BYTES = 64 * PAGE_BYTES  # of all pages: a page with a single long entry has no other limit

_Place: TypeAlias = tuple[str, int]  # a run and the entry before the page


class PageCache:
    """The pages that were asked for last. Entries never change, so a page is right for as long as its run is neither
    compacted nor deleted; one that was read at the end of a growing log only ends early."""

    def __init__(self, max_pages: int = MAX_PAGES, max_bytes: int = MAX_BYTES) -> None:
        self._max_pages = max_pages
        self._max_bytes = max_bytes
        self.stored_bytes = 0
        self._pages: OrderedDict[_Place, LogPage] = OrderedDict()
        self._loading: dict[_Place, asyncio.Future[LogPage]] = {}

    async def page(self, run_id: str, after: int, load: Callable[[], asyncio.Future[LogPage]]) -> LogPage:
        """Raises what `load` raises. A viewer that is cancelled takes no other viewer's page along."""
        place = (run_id, after)
        if (page := self._pages.get(place)) is not None:
            self._pages.move_to_end(place)
            return page
        if (loading := self._loading.get(place)) is None:
            loading = self._loading[place] = load()
            loading.add_done_callback(partial(self._keep, place))
        return await asyncio.shield(loading)

    def _keep(self, place: _Place, loaded: asyncio.Future[LogPage]) -> None:
        if self._loading.get(place) is not loaded:
            return  # forgotten meanwhile
        del self._loading[place]
        if loaded.cancelled() or loaded.exception() is not None or not loaded.result():
            return
        self._pages[place] = loaded.result()
        self.stored_bytes += _size(loaded.result())
        while len(self._pages) > self._max_pages or self.stored_bytes > self._max_bytes:
            _, dropped = self._pages.popitem(last=False)
            self.stored_bytes -= _size(dropped)

    def forget(self, run_id: str) -> None:
        """The run was compacted or deleted."""
        for place in [place for place in self._pages if place[0] == run_id]:
            self.stored_bytes -= _size(self._pages.pop(place))
        for place in [place for place in self._loading if place[0] == run_id]:
            del self._loading[place]


def _size(page: LogPage) -> int:
    return sum(len(line.json) for line in page)
