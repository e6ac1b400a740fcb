"""From a seed to a world. The same seed is the same world on every machine and in every version of this module alone:
a world that is to be kept is kept as a value, not by its seed.
"""

from __future__ import annotations

import random
from typing import Any, get_args

from msgspec.structs import replace

from proof.simulation.world import (
    Ask,
    Bad,
    ChatFault,
    Hang,
    Happening,
    Kill,
    Leave,
    ReplyFault,
    Said,
    Steer,
    Stop,
    StoreFault,
    Watch,
    World,
)

CROWDED = 0.25  # of the worlds
ON_POSTGRES = 0.02
_DIALECTS: tuple[Any, ...] = ("chat", "responses", "anthropic")
_REPLY_FAULTS: tuple[Any, ...] = get_args(ReplyFault)
_CHAT_FAULTS: tuple[Any, ...] = get_args(ChatFault)
_STORE_FAULTS: tuple[Any, ...] = ("full", "full", "io", "locked", "gone", "slow", "slow", "busy", "busy")
_SHAPES: tuple[Any, ...] = ("parallel", "loop", "for_each", "router")
_STREAM_FAULTS: tuple[Any, ...] = ("cut", "end", "stall", "overloaded")  # the ones that hurt: half an answer is out


def world_of(seed: int, store: str = "sqlite") -> World:
    """On this store; of `drawn`, one in so many on PostgreSQL, where a world takes a hundred times as long."""
    rng = random.Random(seed)
    surface = rng.choice(("agent", "agent", "raw", "chat", "mixed", "sequence"))
    nodes = rng.choice((1, 1, 2, 2, 3))
    asks = [_ask(rng, surface, nodes) for _ in range(rng.choice((1, 1, 2, 3)))]
    happenings: list[Happening] = [*asks]
    span_s = 5.0
    for number, ask in enumerate(asks):
        if ask.surface != "chat" and not ask.in_memory and rng.random() < 0.6:
            happenings.append(_watch(rng, number, ask.at, nodes))
        if ask.surface != "chat" and not ask.in_memory and rng.random() < 0.12:
            happenings.append(Stop(_time(rng, ask.at, span_s), number, rng.randrange(nodes)))
    happenings += [_trouble(rng, nodes, span_s) for _ in range(rng.choice((0, 0, 1, 1, 2, 3)))]
    chat_faults: tuple[ChatFault, ...] = ()
    if any(ask.surface == "chat" for ask in asks) and rng.random() < 0.7:
        chat_faults = tuple(rng.choice(("ok", *_CHAT_FAULTS)) for _ in range(rng.randrange(1, 7)))
    world = World(
        noise=rng.randrange(1 << 30),
        nodes=nodes,
        dialect=rng.choice(_DIALECTS),
        fallback=rng.choice((None, None, *_DIALECTS)),
        lease_s=rng.choice((3.0, 6.0, 12.0)),
        writes_on_loop=rng.random() < 0.7,
        max_turns=rng.choice((50, 50, 50, 2, 1)),
        max_tokens=rng.choice((0, 0, 0, 60)),
        approval_s=rng.choice((2.0, 5.0)),
        streaming=rng.random() < 0.8,
        resend=rng.choice(("never", "never", "look_up", "idempotent")),
        mode=rng.choice(("edit", "edit", "edit", "whole", "draft", "stream")),
        limit=rng.choice((4000, 4000, 120)),
        chat_faults=chat_faults,
        happenings=tuple(happenings),
    )
    world = _budgeted(rng, _shaped(rng, _crowded(rng, world) if rng.random() < CROWDED else world))
    world = _steered(random.Random(~seed), world)
    on_postgres = store == "postgres" or (store == "drawn" and random.Random(f"store {seed}").random() < ON_POSTGRES)
    return replace(world, store="postgres") if on_postgres else world


def _shaped(rng: random.Random, world: World) -> World:
    """Half of the sequences of several steps have them inside a block."""

    def shaped(one: Happening) -> Happening:
        if not isinstance(one, Ask) or one.surface != "sequence" or len(one.said) < 2 or rng.random() < 0.5:
            return one
        return replace(one, shape=rng.choice(_SHAPES))

    return replace(world, happenings=tuple(map(shaped, world.happenings)))


def _budgeted(rng: random.Random, world: World) -> World:
    """A few sequences have a budget, and a few keys: not where a chat would have to be told of it."""

    def budgeted(one: Happening) -> Happening:
        if not isinstance(one, Ask) or one.surface != "sequence" or rng.random() < 0.8:
            return one
        return replace(one, budget=rng.choice((30, 60)))

    chats = any(ask.surface == "chat" for ask in world.asks)
    key_tokens = rng.choice((0, 0, 0, 0, 0, 40, 80)) if not chats else 0
    return replace(world, key_tokens=key_tokens, happenings=tuple(map(budgeted, world.happenings)))


def _crowded(rng: random.Random, world: World) -> World:
    """The same world, with more who watch in it, and soon after the question. Half of the answers that go well come in
    many small pieces."""

    def crowded(one: Happening) -> Happening:
        if isinstance(one, Watch):
            at = min(one.at, round(world.asks[one.ask].at + rng.random(), 3))
            return replace(one, at=at, crowd=rng.choice((3, 4, 5)), live=one.live or rng.random() < 0.7)
        if isinstance(one, Ask):
            drips = (Bad("drip"),)
            said = [replace(each, faults=each.faults or drips) if rng.random() < 0.5 else each for each in one.said]
            return replace(one, said=tuple(said))
        return one

    return replace(world, rounds=True, happenings=tuple(map(crowded, world.happenings)))


def _steered(rng: random.Random, world: World) -> World:
    """The same world, in which some turns are given messages."""
    asked = [number for number, ask in enumerate(world.asks) if ask.surface == "agent"]
    steers = [
        Steer(_time(rng, world.asks[number].at, 3.0), number, rng.randrange(world.nodes))
        for number in asked
        for _ in range(rng.choice((0, 0, 1, 2)))
    ]
    return replace(world, happenings=(*world.happenings, *steers))


def _time(rng: random.Random, after: float, span_s: float) -> float:
    return round(after + rng.random() ** 2 * span_s, 3)


def _ask(rng: random.Random, surface: str, nodes: int) -> Ask:
    where: Any = rng.choice(("agent", "raw", "chat", "sequence")) if surface == "mixed" else surface
    steps = 1 if where == "raw" else rng.choice((1, 1, 2, 3))
    said = [_said(rng, with_tool=where != "sequence" and step < steps - 1) for step in range(steps)]
    return Ask(
        at=round(0.1 + rng.random() * 2, 3),
        surface=where,
        node=rng.randrange(nodes),
        session=rng.choice((0, 1, 1)) if where == "agent" else rng.choice((1, 1, 2)) if where == "chat" else 0,
        queue=rng.random() < 0.5,
        said=tuple(said),
        fsync=rng.random() < 0.1,
        in_memory=where == "raw" and rng.random() < 0.5,
    )


def _said(rng: random.Random, *, with_tool: bool) -> Said:
    faults: list[Bad] = []
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2, 4))):
        kind = rng.choice(_STREAM_FAULTS if rng.random() < 0.5 else _REPLY_FAULTS)
        faults.append(Bad(kind, rng.randrange(0, 101)))
    tool: Any = rng.choice(("look", "push", "push", "launch")) if with_tool else ""
    return Said(
        words=rng.choice((0, 1, 6, 12, 40)) if with_tool else rng.choice((1, 6, 12, 40)),
        tool=tool,
        tool_s=rng.choice((0.1, 0.5, 1.5)),
        decision=rng.choice(("once", "once", "session", "deny", "never")) if tool == "launch" else "once",
        faults=tuple(faults),
        thinks=rng.random() < 0.15,
    )


def _watch(rng: random.Random, number: int, asked_at: float, nodes: int) -> Watch:
    pages = rng.random() < 0.4
    return Watch(
        at=_time(rng, asked_at, 4.0),
        ask=number,
        node=rng.randrange(nodes),
        pages=pages,
        snapshot=not pages and rng.random() < 0.4,
        live=not pages and rng.random() < 0.5,
        leaves_after=rng.choice((0, 0, 1, 4, 9)),
        away_s=rng.choice((0.1, 1.0, 3.0)),
    )


def _trouble(rng: random.Random, nodes: int, span_s: float) -> Happening:
    at, node = _time(rng, 0.1, span_s), rng.randrange(nodes)
    back_s = rng.choice((0.5, 1.5, 4.0))
    kind = rng.choice(("kill", "kill", "kill", "hang", "hang", "leave", "store", "store"))
    if kind == "kill":
        return Kill(at, node, rng.choice((0, rng.randrange(1, 120))), back_s)
    if kind == "hang":
        return Hang(at, node, rng.choice((0.5, 2.0, 4.0, 10.0)))
    if kind == "leave":
        return Leave(at, node, back_s)
    return StoreFault(at, rng.choice(_STORE_FAULTS), rng.choice((0.2, 1.5, 4.0)), rng.choice((0, 0, 1, 3)))
