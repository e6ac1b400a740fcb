"""The report of this process."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping

from tailrace import __version__
from tailrace.app.health import reasons_of, unavailable_parts
from tailrace.app.operations.node_reports import NodeReport
from tailrace.app.operations.recent_calls import RecentCallsLog
from tailrace.journal.bus import Bus
from tailrace.ports import Journal


class OwnReport:
    """`running` and `requests` count turns and requests; `degraded` gives the chat platforms that are away, and why."""

    def __init__(
        self,
        journal: Journal,
        bus: Bus | None,
        recent_calls: RecentCallsLog,
        *,
        running: Callable[[], int],
        degraded: Callable[[], Mapping[str, str]],
        redact: Callable[[str], str],
    ) -> None:
        self._journal, self._bus, self._recent_calls = journal, bus, recent_calls
        self._running, self._degraded, self._redact = running, degraded, redact
        self.requests: Callable[[], int] = lambda: 0
        self._started_at = time.time()

    async def make(self) -> NodeReport:
        problems = reasons_of(await unavailable_parts(self._journal, self._bus)) | dict(self._degraded())
        return NodeReport(
            host=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            started_at=self._started_at,
            at=time.time(),
            running=self._running(),
            requests=self.requests(),
            problems={part: self._redact(reason) for part, reason in problems.items()},
            providers=self._recent_calls.summaries(),
        )
