"""The Platform port: what a chat platform must be able to do, and the values that pass through it.

Values and Protocols: no I/O, no clock, no platform's name. Outbound: a `Place`, its `Capabilities`, an action to
perform there, the reply to it. Inbound: an `Update`. The planner decides every action. An adapter translates one action
into one request and the answer into one reply; it never retries, waits or splits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from tailrace.messages import Value

ChatKind = Literal["private", "group"]


class Place(Value):
    """A conversation's address. Stored with each delivery, so that another process can continue it.

    Ids are the platform's own, as text. `thread` is a thread or topic within the chat, empty for the chat itself; the
    adapter sets it to where the answer belongs (a thread below the question, say, where the question is in none).
    """

    platform: str
    chat: str
    thread: str = ""
    kind: ChatKind = "private"
    extra: dict[str, str] = msgspec.field(default_factory=dict)  # what else the adapter needs for answering
    only_for: str = ""  # the one person who needs to see what is sent; a platform that can hides it from others

    @property
    def key(self) -> str:
        """The conversation's id: the same for each of its messages. `extra` and `only_for` are no part of it."""
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
    """A platform's features and limits in one place. The planner knows nothing else of the platform.

    `mode` is how a growing answer is shown: "edit" edits one message in place; "draft" shows an ephemeral preview,
    which a complete message replaces; "stream" appends to a native stream, which can be edited once it is closed (not
    used without `edits`); "whole" shows nothing before the answer is complete.
    """

    mode: Mode = "whole"
    limit: int = 4096  # of one message, in `unit`, counted over its Markdown source
    unit: Unit = "chars"
    edits: bool = False  # a message can be edited after it was sent
    deletes: bool = False  # a message can be deleted
    buttons: bool = False
    threaded: bool = False  # every question has a thread of its own: a command outside of one is about the whole chat
    joins_threads: bool = False  # a thread in which the bot has answered is its conversation, and needs no mention
    hides: bool = False  # what is for one person alone is hidden from others, and not counted by `windows`
    command_mark: str = "/"  # what a person types before a command's name
    max_file_bytes: int = 0  # of a file that can be uploaded; 0: none can be
    cards: bool = False  # a native stream shows tools as cards of their own
    reply_window: bool = False  # a message may be refused until the person has written again
    resend: Resend = "never"  # what to do about a send without a reply; see `Send` and `LookUp`
    edit_interval_s: float = 1.5  # between updates of a growing text; the config may set another
    rewrite_interval_s: float = 0.0  # at least, between edits, where they are fewer than additions to a native stream
    windows: tuple[Window, ...] = (Window(1, 1.0),)  # the rate limits of one chat: all of them apply
    typing_s: float | None = None  # how long a typing indicator lasts; None: there is none
    stream_lifetime_s: float | None = None  # a native stream is replaced by the next message before this age
    draft_lifetime_s: float | None = None  # a preview is sent again before it has been unchanged for so long


# ── actions: what the planner wants done ─────────────────────────────────────────────────────────────────────


class PlatformAction(Value):
    """Base of the actions. Text is balanced Markdown within the limit; with `markup` False it is shown verbatim."""


class Button(Value):
    """`ButtonPressed` returns `value`, at most 64 bytes."""

    label: str
    value: str


CardStatus = Literal["running", "done", "failed"]
# What a message is for. A platform that passes messages on, to a loudspeaker say, must tell an answer from the rest.
# `stopped`: the beginning of an answer whose run was stopped, or interrupted by a newer message.
Purpose = Literal["answer", "stopped", "tools", "notice", "approval", "pairing", "failure"]


class Card(Value):
    """A tool as a native stream shows it. The same `id` again is an update."""

    id: str
    title: str
    status: CardStatus = "running"


class Send(PlatformAction):
    """A new message. Reply: `Sent`.

    `key` is unique to this message and the same for each attempt, in another process too. A platform with
    `resend="idempotent"` uses it as the transaction id, so that a second attempt returns the message of the first.
    `final`: the text will not grow. Without a reply it is never sent again under another key. `silent`: no device
    rings, where the platform can send so.
    """

    key: str
    text: str
    markup: bool = True
    final: bool = True
    buttons: tuple[Button, ...] = ()
    purpose: Purpose = "answer"
    silent: bool = False


class Upload(PlatformAction):
    """A new message that is a file; an image is shown as one. Only up to `Capabilities.max_file_bytes`. Reply: `Sent`.
    After `Refused` the file's name is sent instead. It is always silent.

    `key` as in `Send`. With `resend="look_up"` an upload without a reply is not looked up, and not made again."""

    key: str
    name: str
    media_type: str
    data: bytes


class LookUp(PlatformAction):
    """Was the message with this key sent? Only with `resend="look_up"`. Reply: `Sent`; `NotFound` when it was certainly
    not sent; `Unknown` otherwise."""

    key: str
    text: str
    markup: bool = True


class Edit(PlatformAction):
    """Replaces the message's text and buttons. Safe to repeat. Reply: `Accepted` or `NotModified`."""

    message_id: str
    text: str
    markup: bool = True
    final: bool = True
    buttons: tuple[Button, ...] = ()
    purpose: Purpose = "answer"


class Draft(PlatformAction):
    """Replaces the text of the ephemeral preview, which vanishes when a message is sent. Reply: `Accepted`."""

    draft_id: int  # never 0; another number is another preview
    text: str
    markup: bool = True


class Open(PlatformAction):
    """Begins a native stream: a message that grows. Reply: `Sent`."""

    key: str
    text: str = ""
    cards: tuple[Card, ...] = ()


class Append(PlatformAction):
    """Adds the next piece of text, and cards that are new or changed, to a native stream. Reply: `Accepted`."""

    message_id: str
    text: str = ""
    cards: tuple[Card, ...] = ()


class Close(PlatformAction):
    """Adds the last piece and ends the native stream; the message stays. Reply: `Accepted`, or `Gone` for a stream that
    has ended already."""

    message_id: str
    text: str = ""
    cards: tuple[Card, ...] = ()


class Delete(PlatformAction):
    """Reply: `Accepted`, also when the message does not exist any more."""

    message_id: str


class Typing(PlatformAction):
    """Shows the typing indicator for `Capabilities.typing_s`. Reply: `Accepted`; any other reply is ignored."""


AnyAction: TypeAlias = Send | Upload | LookUp | Edit | Draft | Open | Append | Close | Delete | Typing

# ── replies: what became of an action ───────────────────────────────────────────────────────────────────────────────


class PlatformReply(Value):
    """Base of the replies. Every reply but `Unknown` is certain: the action was done, or it was not."""


class Sent(PlatformReply):
    """Done; the message has this id. `pause_s`: how long the next request must wait by the platform's headers."""

    message_id: str
    pause_s: float = 0.0


class Accepted(PlatformReply):
    """Done."""

    pause_s: float = 0.0


class NotModified(PlatformReply):
    """The message shows exactly that already (G79): equivalent to `Accepted`."""


class Flood(PlatformReply):
    """Not done: too many requests. The next one is allowed after `retry_after_s`."""

    retry_after_s: float


class MarkupRejected(PlatformReply):
    """Not done: the platform cannot parse the markup. The planner sends the same text again without markup."""


class TooLong(PlatformReply):
    """Not done: the text exceeds the platform's limit."""


class Unknown(PlatformReply):
    """The action may have been done or not: a time-out, a connection cut after the request was written, a 5xx from a
    proxy in between. `unlikely`: the adapter itself failed, or the platform confirms each message that it
    takes and has confirmed none; the chat then says that something is missing."""

    reason: str = ""
    unlikely: bool = False


class Gone(PlatformReply):
    """Not done: the message, the native stream, the thread or the chat does not exist any more, or the bot was removed
    from it."""

    what: Literal["message", "stream", "thread", "chat"]


class Refused(PlatformReply):
    """Not done, and a retry will not help: missing rights, a policy, a time limit. `reason` is for people."""

    reason: str = ""
    for_now: bool = False  # of `Open`: this text is sent when it is whole, later ones are streamed again
    until_heard: bool = False  # the platform takes it once the person has written again


class Failed(PlatformReply):
    """Certainly not done (the connection was refused, the platform reported an error): worth a retry."""

    reason: str = ""
    needs_operator: bool = False  # it lasts until the person who runs us does something: another token


class NotFound(PlatformReply):
    """The reply to a `LookUp`: the message was not sent."""


AnyReply: TypeAlias = (
    Sent | Accepted | NotModified | Flood | MarkupRejected | TooLong | Unknown | Gone | Refused | Failed | NotFound
)

# ── inbound: what users do there ────────────────────────────────────────────────────────────────────────────


class Sender(Value):
    """`id` as in the allow-list; `name` is for people."""

    id: str
    name: str = ""


class Attachment(Value):
    """A file of a message; `Platform.fetch` gets its content. `ref` is the adapter's own reference."""

    ref: str
    name: str = ""
    media_type: str = ""
    size_bytes: int | None = None


class Quoted(Value):
    """A message that another one refers to. The gateway writes it above what was typed.

    `what`: what there is in place of a message that cannot be quoted ("a story; this bot cannot read it"). `files` are
    attached with those of the message; of a thread they are named."""

    author: str = ""  # the name of the person; empty: not known
    text: str = ""
    files: tuple[Attachment, ...] = ()
    kind: Literal["reply", "forward", "thread"] = "reply"
    is_ours: bool = False  # the bot wrote it
    what: str = ""


class _Update(Value):
    """`update_id` is unique on this platform, and the same when the update is delivered again (G88)."""

    update_id: str
    place: Place
    sender: Sender


class MessageReceived(_Update, tag="message"):
    """A user wrote. An adapter translates what the platform sent; what the message is, `gateway.incoming` decides.

    `text` is what was typed, without the mention of the bot; a platform's own slash commands arrive as their text,
    `/stop`. `quoted`: what the message brought along of others, such as the message that it replies to; `reply_to` is
    the id of one that `Platform.quoted` can read. `addressed`: in a group, the message mentions the bot or replies to
    it. `to_others`: it is addressed to another person or bot. `at_limit`: the text is as long as the client allows for
    one message, or one of several that clients send together, so that more may follow (G89). `late_s`: it was written
    so many seconds ago, while no process was there to receive it, by the platform's clock, 0 where that is not known;
    None for all others.
    """

    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    addressed: bool = True
    at_limit: bool = False
    parts: tuple[str, ...] = ()  # the updates that it was joined from; empty where it is one
    message_id: str = ""
    to_others: bool = False
    late_s: float | None = None
    quoted: tuple[Quoted, ...] = ()
    reply_to: str = ""


class ButtonPressed(_Update, tag="button"):
    """A user pressed a button of ours. `value` is the button's."""

    value: str
    message_id: str = ""


class StopPressed(_Update, tag="stop"):
    """A user used the platform's own control for stopping an answer."""


class MessageLost(_Update, tag="lost"):
    """The platform accepted a message of ours and reports later that it could not deliver it. `sender` is the person it
    was for. `undelivered`: the delivery, named in the message's key, that the platform takes once the person has
    written again; empty: the loss has another reason, and the next message may arrive."""

    undelivered: str = ""


Update: TypeAlias = MessageReceived | ButtonPressed | StopPressed | MessageLost


class Inbox(Protocol):
    """Where an adapter puts what it receives."""

    async def put(self, update: Update) -> None:
        """Returns once the update is accepted; the adapter may acknowledge it then. Does not wait for an answer. The
        same `update_id` again is a no-op. Raises `TailraceError` for an update that was not handled, as when another
        process polls the platform now: the platform must deliver it again."""

    @property
    def holds_parts(self) -> bool:
        """Whether an update that was put waits for the rest of its paste, in memory alone (G89). A platform that gives
        out again what was not acknowledged gets its acknowledgement, or its position kept, once nothing is held."""

    async def until_released(self, update_id: str) -> None:
        """Returns at once for an update that is not held, else when its paste has become a question: the time to
        acknowledge it, on a platform that takes an acknowledgement for each. Raises `TailraceError` where the platform
        must deliver it again."""

    async def serves(self, sender: Sender) -> bool:
        """Whether this person is answered. For an adapter whose platform wants a word of its own on each update."""

    def connected(self) -> None:
        """The adapter is connected: a failure after this is no failed start."""

    async def position(self) -> str:
        """Up to where this account's updates were put, by this process or another one; empty where that is not known.
        For an adapter whose platform gives out again what came after a position."""

    async def keep_position(self, position: str) -> bool:
        """All updates up to here were put. The next process begins there. Returns whether it is kept: where storage
        fails, `position` still gives the one before it."""


# ── webhooks ─────────────────────────────────────────────────────────────────────


class HookRequest(msgspec.Struct, frozen=True):
    """One HTTP request. Header names are in lower case; `body` is raw, for checking its signature (J120)."""

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


@runtime_checkable
class Platform(Protocol):
    """A chat platform. The constructor does no I/O; `run` connects. Exceptions of its libraries never leave it."""

    @property
    def name(self) -> str:
        """The name in the config."""

    @property
    def hook_path(self) -> str:
        """The path of its webhook, `/platforms/<name>/…`; empty: it has none."""

    @property
    def stops_when_refused(self) -> bool:
        """Whether a permanent error of `run` is the end until the process starts again: some servers ban the address
        of a client that tries a refused token again."""

    def capabilities(self, place: Place) -> Capabilities:
        """Constant for a place while the process lives."""

    async def perform(self, place: Place, action: AnyAction) -> AnyReply:
        """Makes one request. Raises nothing but `CancelledError`; has its own deadline (`Unknown` when it passes).
        Called for one action of a chat at a time, in order, and also before `run` or between two runs."""

    async def fetch(self, attachment: Attachment, *, max_bytes: int) -> bytes:
        """The content of a file. Raises `PlatformError`, also for more than `max_bytes`."""

    async def quoted(self, message: MessageReceived, *, in_conversation: bool) -> tuple[Quoted, ...]:
        """What the message refers to and did not bring along: the message that it replies to, and the thread that it
        stands in. `in_conversation`: the bot has a part in the thread, so that it is not read again. Called once a
        message is to be answered. Raises nothing."""

    async def display_name(self, sender: Sender) -> str:
        """The name that people know the sender by, of which only the `id` may be known; empty where it cannot be had
        soon. Raises nothing."""

    async def run(self, inbox: Inbox) -> None:
        """Connects and puts updates into the inbox until it is cancelled. Raises `PlatformError` when it cannot connect
        or loses the connection; the gateway calls it again after a pause. Leaves no task or connection behind."""

    async def hook(self, request: HookRequest, inbox: Inbox) -> HookAnswer:
        """Answers one request to `hook_path`. Raises nothing: a wrong signature is answered 401 or 403."""

    async def check(self) -> str:
        """The bot's account, in a few words, for `tailrace doctor`. Raises `PlatformError`."""

    async def close(self) -> None:
        """Closes the connections; no call follows."""
