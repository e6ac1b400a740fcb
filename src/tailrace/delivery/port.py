"""The Platform port: what a chat platform must be able to do, and the values that pass through it.

It stands here and not in `ports` because only delivery and the adapters above it speak this language, and it fills a
page of its own. Values and Protocols: no I/O, no clock, no platform's name.

Outwards: a `Place`, its `Capabilities`, an `AnyAction` to perform there, the `AnyReply` to it. Inwards: an `Update`.
The planner decides every action; an adapter translates one action into one request and the answer into one reply, and
decides nothing: it neither retries nor waits nor splits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol, TypeAlias

import msgspec

from tailrace.messages import Value

ChatKind = Literal["private", "group"]


class Place(Value):
    """Where a conversation is held. Kept with each delivery, so that another process can go on with it.

    Ids are the platform's own, as text. `thread` is a thread or topic within the chat, empty for the chat itself; the
    adapter sets it to where the answer belongs (Slack: the question's own `ts` where the question is in no thread).
    """

    platform: str
    chat: str
    thread: str = ""
    kind: ChatKind = "private"
    extra: dict[str, str] = msgspec.field(default_factory=dict)  # what else the adapter needs to answer there

    @property
    def key(self) -> str:
        """Names the conversation: the same text for every message of it, whatever `extra` says."""
        return f"{self.platform}:{self.chat}:{self.thread}" if self.thread else f"{self.platform}:{self.chat}"


# ── what a platform can do ───────────────────────────────────────────────────────────────────────────────────

Mode = Literal["whole", "edit", "draft", "stream"]
Unit = Literal["utf16", "chars", "bytes"]
Resend = Literal["never", "look_up", "idempotent"]


class Window(Value):
    """At most `count` requests in any `seconds`. Typing indicators are not counted."""

    count: int
    seconds: float


class Capabilities(Value):
    """A platform's numbers for one place, as data. The planner knows nothing else of it.

    `mode` is how a growing answer is shown there: "edit" one message in place; "draft" an ephemeral preview that a
    whole message replaces; "stream" a native stream that text is appended to, and that can be edited once it is closed
    (without `edits` it is not used); "whole" not at all.
    """

    mode: Mode = "whole"
    limit: int = 4096  # of one message, in `unit`, counted over its Markdown source
    unit: Unit = "chars"
    edits: bool = False  # a message can be edited after it was sent
    deletes: bool = False  # … and deleted
    buttons: bool = False
    cards: bool = False  # a native stream shows tools as cards of their own
    resend: Resend = "never"  # how a send that got no reply is settled; see `Send` and `LookUp`
    edit_interval_s: float = 1.5  # between updates of a growing text, unless the config names another
    windows: tuple[Window, ...] = (Window(1, 1.0),)  # the budget of one chat: all of them hold at once
    typing_s: float | None = None  # how long a typing indicator lasts; None: there is none
    stream_lifetime_s: float | None = None  # a native stream is rolled over before it is this old
    draft_lifetime_s: float | None = None  # a preview is drawn again before it stood unchanged for so long


# ── actions: what the planner wants done ─────────────────────────────────────────────────────────────────────


class PlatformAction(Value):
    """Base of what can be asked of a platform. Text is Markdown, balanced and within the limit; where `markup` is
    False it is shown as it is, character by character."""


class Button(Value):
    """`value` comes back in `ButtonPressed`; at most 64 bytes."""

    label: str
    value: str


CardStatus = Literal["running", "done", "failed"]


class Card(Value):
    """A tool as a native stream shows it. The same `id` again is an update."""

    id: str
    title: str
    status: CardStatus = "running"


class Send(PlatformAction):
    """A new message. Reply: `Sent`.

    `key` is the same whenever this message is attempted, in another process too, and differs from every other
    message's: a platform with `resend="idempotent"` uses it as the transaction id, so that a second attempt gives the
    message of the first. `final`: the text will not grow; what gets no reply is not sent again blindly.
    """

    key: str
    text: str
    markup: bool = True
    final: bool = True
    buttons: tuple[Button, ...] = ()


class LookUp(PlatformAction):
    """Was the message with this key sent? Only where `resend="look_up"`. Reply: `Sent`, or `NotFound` when it is
    certain that it was not; `Unknown` when it cannot be told."""

    key: str
    text: str
    markup: bool = True


class Edit(PlatformAction):
    """The message shows exactly this from now on; buttons that are not named go. Safe to repeat. Reply: `Accepted`
    or `NotModified`."""

    message_id: str
    text: str
    markup: bool = True
    final: bool = True
    buttons: tuple[Button, ...] = ()


class Draft(PlatformAction):
    """The ephemeral preview shows this. It vanishes by itself when the message is sent. Reply: `Accepted`."""

    draft_id: int  # never 0; another number is another preview
    text: str
    markup: bool = True


class Open(PlatformAction):
    """Begins a native stream: a message that grows. Reply: `Sent`."""

    key: str
    text: str = ""
    cards: tuple[Card, ...] = ()


class Append(PlatformAction):
    """Adds to a native stream: the next piece of its text, cards that are new or changed. Reply: `Accepted`."""

    message_id: str
    text: str = ""
    cards: tuple[Card, ...] = ()


class Close(PlatformAction):
    """Adds the last piece and ends the native stream; the message stays. One that has ended already is `Gone`.
    Reply: `Accepted`."""

    message_id: str
    text: str = ""
    cards: tuple[Card, ...] = ()


class Delete(PlatformAction):
    """Reply: `Accepted`, also when it is not there any more."""

    message_id: str


class Typing(PlatformAction):
    """Shows that an answer is being made, for `Capabilities.typing_s`. Reply: `Accepted`; whatever else it is, it is
    not worth a second try."""


AnyAction: TypeAlias = Send | LookUp | Edit | Draft | Open | Append | Close | Delete | Typing

# ── replies: what became of it ───────────────────────────────────────────────────────────────────────────────


class PlatformReply(Value):
    """Base of what a platform answers. Every reply but `Unknown` is certain: either it was done, or it was not."""


class Sent(PlatformReply):
    """Done; the message has this id. `pause_s`: the platform's headers say that the next request must wait so long."""

    message_id: str
    pause_s: float = 0.0


class Accepted(PlatformReply):
    """Done."""

    pause_s: float = 0.0


class NotModified(PlatformReply):
    """The message shows exactly that already (G79): as good as `Accepted`."""


class Flood(PlatformReply):
    """Not done: too many requests; not before `retry_after_s`."""

    retry_after_s: float


class MarkupRejected(PlatformReply):
    """Not done: the platform cannot parse the markup. The same text is asked for again without it."""


class TooLong(PlatformReply):
    """Not done: the text exceeds the platform's limit after all."""


class Unknown(PlatformReply):
    """No reply came, or one that says nothing: a time-out, a connection cut after the request was written, a 5xx from
    a gateway in between. It may have been done or not."""

    reason: str = ""


class Gone(PlatformReply):
    """Not done: the message, the native stream, the thread or the chat does not exist any more, or the bot was put out
    of it."""

    what: Literal["message", "stream", "thread", "chat"]


class Refused(PlatformReply):
    """Not done, and it will not be: rights, a policy, a closed window of time. `reason` is for people."""

    reason: str = ""


class Failed(PlatformReply):
    """Not done, certainly (the connection was refused, an error of the platform's own): worth another try."""

    reason: str = ""


class NotFound(PlatformReply):
    """The answer to a `LookUp`: it was not sent."""


AnyReply: TypeAlias = (
    Sent | Accepted | NotModified | Flood | MarkupRejected | TooLong | Unknown | Gone | Refused | Failed | NotFound
)

# ── inbound: what people do there ────────────────────────────────────────────────────────────────────────────


class Sender(Value):
    """`id` as the allow-list has it; `name` is for people."""

    id: str
    name: str = ""


class Attachment(Value):
    """A file that came with a message; `Platform.fetch` gets its content. `ref` is the adapter's own."""

    ref: str
    name: str = ""
    media_type: str = ""
    size_bytes: int | None = None


class MessageReceived(Value, tag="message"):
    """Somebody wrote. `update_id` is the same when the platform delivers the same update again (G88), and differs from
    every other update's on this platform.

    `addressed`: in a group, the message mentions the bot, replies to it or is a command to it; the mention itself is
    taken out of `text`. `at_limit`: the text is as long as the client lets one message be, so that more of the same
    paste may follow (G89). A platform's own slash commands arrive as their text, `/stop`.
    """

    update_id: str
    place: Place
    sender: Sender
    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    addressed: bool = True
    at_limit: bool = False
    message_id: str = ""


class ButtonPressed(Value, tag="button"):
    """Somebody pressed a button of ours. `value` is the button's."""

    update_id: str
    place: Place
    sender: Sender
    value: str
    message_id: str = ""


class StopPressed(Value, tag="stop"):
    """Somebody used the platform's own control for stopping an answer."""

    update_id: str
    place: Place
    sender: Sender


Update: TypeAlias = MessageReceived | ButtonPressed | StopPressed


class Inbox(Protocol):
    """Where an adapter puts what it receives."""

    async def put(self, update: Update) -> None:
        """Returns once the update is in good hands: after that the platform may be told that it was received. Does not
        wait for an answer to it. The same `update_id` again does nothing. Raises `PlatformError` when the process is
        about to end and takes no new work: the platform must deliver it again."""

    def connected(self) -> None:
        """The adapter is in contact from now on: what comes next is not a failed start."""


# ── webhooks, for platforms that call us ─────────────────────────────────────────────────────────────────────


class HookRequest(msgspec.Struct, frozen=True):
    """One HTTP request as it came. Header names are in lower case; `body` is raw, as signatures need it (J120)."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


class HookAnswer(msgspec.Struct, frozen=True):
    status: int = 200
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"


# ── the port ─────────────────────────────────────────────────────────────────────────────────────────────────


class Platform(Protocol):
    """A chat platform. Made without I/O; `run` connects. Foreign exceptions end inside."""

    @property
    def name(self) -> str:
        """As in the config: "telegram"."""

    @property
    def hook_path(self) -> str:
        """Where it wants to be called by HTTP, `/platforms/<name>/…`; empty: nowhere."""

    def capabilities(self, place: Place) -> Capabilities:
        """Its numbers there. The same for the same place while the process lives."""

    async def perform(self, place: Place, action: AnyAction) -> AnyReply:
        """One request. Never raises but `CancelledError`; has a deadline of its own (`Unknown` when it passes).
        Called at most once at a time for one chat, in order, and also before `run` or between two runs."""

    async def fetch(self, attachment: Attachment, *, max_bytes: int) -> bytes:
        """The content of a file that came with a message. Raises `PlatformError`, also for more than `max_bytes`."""

    async def run(self, inbox: Inbox) -> None:
        """Connects and puts updates into the inbox until it is cancelled. Raises `PlatformError` when the connection
        cannot be had or is lost; it is called again after a pause. Leaves nothing behind."""

    async def hook(self, request: HookRequest, inbox: Inbox) -> HookAnswer:
        """Answers one call to `hook_path`. Raises nothing: what is not signed right is answered 401 or 403."""

    async def check(self) -> str:
        """Who we are there, in a few words, for `tailrace doctor`. Raises `PlatformError`."""

    async def close(self) -> None:
        """Lets go of connections; after that nothing is performed."""
