"""A world as a value: what is asked of the runtime, what goes wrong around it, and when.

Worlds are compared, printed as Python literals and made smaller; so everything in them is a plain value with a default.
Times are seconds since the world began.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias, dataclass_transform

import msgspec

from tailrace.messages import Dialect

LAUNCH = re.compile(r"launch (\d+)\.(\d+)")  # what `launch` says that it would do: its question and its step
ToolName = Literal["", "look", "push", "launch"]  # repeatable, not repeatable, not repeatable and asked about
Decision = Literal["once", "session", "deny", "never"]
Surface = Literal["agent", "raw", "chat", "sequence"]  # of a sequence: a step for each answer
Shape = Literal["line", "parallel", "loop", "for_each", "router"]  # of a sequence
ReplyFault = Literal[
    "ok", "cut", "end", "stall", "pings", "overloaded", "refused", "no-connect", "429", "500", "503", "529", "400",
    "401", "html", "garbage", "empty", "whole", "no-streaming", "drip", "slow", "late", "length",
]  # fmt: skip
ChatFault = Literal["ok", "flood", "lost-done", "lost", "failed", "slow", "raises", "markup", "gone"]
StoreName = Literal["sqlite", "postgres"]
StoreFaultKind = Literal["full", "io", "locked", "gone", "slow", "busy"]


# For the type checker: subclasses are frozen like this one, as they are at run time.
@dataclass_transform(frozen_default=True)
class Value(msgspec.Struct, frozen=True, omit_defaults=True):
    """Its repr is the literal that makes it again, without what is as usual."""

    def __repr__(self) -> str:
        changed = []
        for name, default in zip(self.__struct_fields__, self.__struct_defaults__, strict=True):
            value = getattr(self, name)
            if value != default:
                changed.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(changed)})"


class Bad(Value):
    """What the provider does to one request; `at` is a place in the answer, in per cent of its bytes."""

    kind: ReplyFault = "ok"
    at: int = 50


class Said(Value):
    """One answer of the model: so many words, then a call of the tool. `faults` befall the requests for it in turn,
    and the next one goes well."""

    words: int = 6
    tool: ToolName = ""
    tool_s: float = 0.5
    decision: Decision = "once"  # of the person who is asked about `launch`
    faults: tuple[Bad, ...] = ()
    thinks: bool = False


class Ask(Value):
    """Somebody asks something. In a chat the message is posted there, else a client sends a request to the node."""

    at: float = 0.0
    surface: Surface = "agent"
    node: int = 0
    session: int = 0  # 0: none
    queue: bool = False  # in a session that is busy: wait instead of interrupting
    said: tuple[Said, ...] = (Said(),)
    fsync: bool = False
    in_memory: bool = False  # a raw call whose run is stored when it ends; the client waits for that
    shape: Shape = "line"  # of a sequence: its steps one after the other, or inside a block of this type
    budget: int = 0  # tokens of a sequence; 0: none


class Watch(Value):
    """A viewer of what the `ask`-th client asked for; it leaves after so many entries and comes back elsewhere."""

    at: float = 0.0
    ask: int = 0
    node: int = 0
    pages: bool = False
    snapshot: bool = False
    live: bool = False  # it is handed what is committed in the tick of the commit, and refuses some of it
    crowd: int = 1  # so many do it, one shortly after the other
    leaves_after: int = 0  # entries; 0: stays
    away_s: float = 1.0


class Stop(Value):
    """A client stops what the `ask`-th one asked for."""

    at: float = 0.0
    ask: int = 0
    node: int = 0


class Steer(Value):
    """A client gives the turn that the `ask`-th one began a message while it is under way."""

    at: float = 0.0
    ask: int = 0
    node: int = 0


class Kill(Value):
    """The node's process is killed, so many steps after this time, and started again later."""

    at: float = 0.0
    node: int = 0
    steps: int = 0
    back_s: float = 5.0


class Hang(Value):
    """The node's process stands still for so long: a suspended machine, a debugger, a full collection."""

    at: float = 0.0
    node: int = 0
    for_s: float = 5.0


class Leave(Value):
    """The node is told to end (SIGTERM), hands its work over and is started again later."""

    at: float = 0.0
    node: int = 0
    back_s: float = 5.0


class StoreFault(Value):
    """The store refuses, from so many statements into a write on, or is slow, or another process is writing."""

    at: float = 0.0
    kind: StoreFaultKind = "full"
    for_s: float = 3.0
    after_statements: int = 0


Happening: TypeAlias = Ask | Watch | Stop | Steer | Kill | Hang | Leave | StoreFault


class World(Value):
    """Everything that makes one run."""

    noise: int = 0  # seeds delays and ids
    store: StoreName = "sqlite"
    nodes: int = 1
    dialect: Dialect = "chat"
    fallback: Dialect | None = None
    lease_s: float = 3.0
    writes_on_loop: bool = False  # groups are written by the loop where it need not wait, else by the writer's thread
    max_turns: int = 50
    max_tokens: int = 0  # 0: no such budget
    key_tokens: int = 0  # that the key of all clients may use in a day; 0: no such budget
    approval_s: float = 20.0
    streaming: bool = True  # in chats
    resend: Literal["never", "look_up", "idempotent"] = "never"
    mode: Literal["whole", "edit", "draft", "stream"] = "edit"
    limit: int = 4000  # characters of one message
    chat_faults: tuple[ChatFault, ...] = ()  # befall the requests to the platform in turn
    rounds: bool = False  # what three and more watch live they are shown in rounds, two at a time
    happenings: tuple[Happening, ...] = (Ask(),)

    def decision(self, text: str) -> Decision:
        """Of the person who is asked about the last action in this text."""
        found = LAUNCH.findall(text)
        if not found:
            return "deny"
        number, step = map(int, found[-1])
        said = self.asks[number - 1].said
        return said[step].decision if step < len(said) else "deny"

    @property
    def asks(self) -> tuple[Ask, ...]:
        return tuple(one for one in self.happenings if isinstance(one, Ask))
