"""What counts calls costs a relayed answer nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from server.http_server import running_server
from tailrace.messages import EventForm, ModelRequest, TextDelta
from tailrace.providers.call_listener import CallListener


async def test_a_server_that_counts_and_charges_lets_events_be_relayed_unread(tmp_path: Path) -> None:
    """One middleware without `relay` would have each token of every answer decoded by itself."""

    class Client(CallListener):
        def relay(self, _form: EventForm) -> Callable[[bytes], float]:
            return written

    def written(_body: bytes) -> float:
        return 0.0

    async with running_server(tmp_path) as server:
        watched = server.app.caller.watched(ModelRequest("ok", ()), (), Client())
        watched.deltas([TextDelta("The first token")])
        assert watched.relay(EventForm(b"<", b">", b"><")) is written
