"""What one turn of the agent is made from, as it is stored with its run."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from tailrace.agent.fork import ForkPoint
from tailrace.events.speakers import SpokenBy
from tailrace.messages import JsonObject, Message, ModelRequest, ToolSpec, Value

Busy = Literal["interrupt", "queue", "steer"]


class PendingAttachments(Value):
    """What is still missing of a question: files that are fetched once its turn has begun, so that no other message
    waits for them (L147). `source` is a key of `AgentService.sources`, `reference` what that source understands."""

    source: str
    reference: JsonObject


class ClientTurn(Value):
    """A turn in the words of the front end that asked for it. By these a request that comes again is known, and so are
    the messages that the front end repeats (`server.frontends.client_thread`)."""

    request_id: str = ""
    message_ids: tuple[str, ...] = ()  # of the messages that came with this turn
    state: Any = None  # of the front end's own, as it was sent


class TurnSpec(Value):
    """Everything that one turn is made from. It is stored with the run, so that any process can go on with it."""

    message: Message
    model: str = ""  # "<provider>/<model>"; empty: the configured one
    request: ModelRequest | None = None  # sampling and further fields of the client's own
    system: str = ""
    history: tuple[Message, ...] | None = None  # the client's own account of what was said before
    replaces_history: bool = False  # the session's later turns take `history` for what was said before, too
    previous_run: str | None = None  # the last run of the history; empty: there is none; None: the session's newest
    foreign: tuple[ToolSpec, ...] = ()  # tools that the client runs
    directory: str = ""
    requester: str = ""
    requester_name: str = ""  # what people call the requester, where that is another name
    spoken_by: SpokenBy | None = None  # the speaker of `message`, whose text does not name them; None: not looked up
    reachable: bool = False  # a person is there who can answer an approval
    yolo: bool = False
    checkpoints: bool | Literal["auto"] = False  # auto: where that is quick; nothing waits for one that is not
    plan: bool = False  # nothing is changed: no tool runs that may do more than read
    max_turns: int | None = None
    max_tokens: int | None = None
    max_usd: float | None = None
    typed: bool = False  # an answer that does not satisfy the schema of `request` is asked for again
    program: str | None = None  # names what its program brings along for it, such as tools; None: nothing
    tools: tuple[str, ...] | None = None  # which of ours are offered; None: the configured ones
    busy: Busy = "interrupt"  # a run that has the session's turn is stopped, waited for, or given the message
    must_answer: bool = False  # the requester was promised an answer: questions of other people wait for it
    origin: JsonObject = msgspec.field(default_factory=dict)  # as the client put it: kept for showing the run
    client: ClientTurn | None = None  # where a front end keeps the conversation beside the session
    ignored: tuple[str, ...] = ()  # the client's parameters that are not sent to the model
    pending_attachments: PendingAttachments | None = None  # `message` names the files; the turn begins by fetching them
    shown: str = ""  # the question as its user sees it, where `message` has more than they typed
    retry_of: str = ""  # the run whose question is asked again
    forked_from: ForkPoint | None = None  # the run that it goes on from; `message` is that run's, or a new one
