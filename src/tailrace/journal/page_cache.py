"""Pages of stored entries, shared by the viewers that read the same part of a log at about the same time.

Owns which pages are kept. A page that is being read is read once, for however many viewers.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from tailrace.ports import LogPage

MAX_PAGES = 64

_Place: TypeAlias = tuple[str, int]  # a run and the entry before the page


class PageCache:
    """The pages that were asked for last. Entries never change, so a page is right for as long as its run is neither
    compacted nor deleted; one that was read at the end of a growing log only ends early."""

    def __init__(self, max_pages: int = MAX_PAGES) -> None:
        self._max_pages = max_pages
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
        if len(self._pages) > self._max_pages:
            self._pages.popitem(last=False)

    def forget(self, run_id: str) -> None:
        """The run was compacted or deleted."""
        for kept in (self._pages, self._loading):
            for place in [place for place in kept if place[0] == run_id]:
                del kept[place]
