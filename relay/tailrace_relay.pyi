from asyncio import Transport
from collections.abc import Callable

from tailrace.messages import EventForm
from tailrace.providers.http.streamed_answer import RelayGuard
from tailrace.providers.transport.port import HttpReply
from tailrace.wire.templates import Template, TemplateDecoder

class Relay:
    form: EventForm
    decoder: TemplateDecoder
    bodies: list[bytes]
    times: list[float]
    looks_at: float
    room: int
    def __init__(
        self,
        template: Template,
        write: Callable[[bytes], float],
        decoder: TemplateDecoder,
        reply: HttpReply,
        guard: RelayGuard | None,
        /,
    ) -> None: ...
    def take(self, data: bytes, /) -> bool: ...

class DirectReader:
    is_attached: bool
    def attach(self, data_received: Callable[[bytes], None], reply: HttpReply, data: bytes, body: bytes, /) -> None: ...
    def detach(self) -> None: ...

class Poller:
    attached: int
    def reader(self, transport: Transport | None, /) -> DirectReader | None: ...
    def run(self) -> None: ...
