"""Worlds that once broke a rule, as small as they could be made. Each says what was wrong."""

from __future__ import annotations

import pytest
from proof.simulation.simulation import simulate
from proof.simulation.world import Ask, Bad, Hang, Kill, Leave, Said, StoreFault, Watch, World

FOUND = {
    # A person answered the question of another chat, whose text had come in between.
    "two chats that ask at once": World(
        mode="whole",
        limit=120,
        approval_s=5.0,
        happenings=(
            Ask(at=1.915, surface="chat", session=2, said=(Said(words=0, tool="launch"), Said(words=1))),
            Ask(at=1.727, surface="chat", session=1, said=(Said(words=0, tool="launch", decision="deny"), Said())),
        ),
    ),
    # A process that came back right after a deadline did not read what had come meanwhile.
    "an answer that arrived while its process hung, right at a deadline": World(
        noise=58370195,
        dialect="anthropic",
        happenings=(
            Ask(
                at=1.8,
                surface="sequence",
                said=(
                    Said(words=1, faults=(Bad(kind="end", at=88),)),
                    Said(words=12, faults=(Bad(kind="end", at=19), Bad(kind="end", at=48))),
                ),
            ),
            Hang(at=4.2, for_s=4.0),
        ),
    ),
    # The client of a call in memory took it that storage would have a record, which it had refused.
    "a call in memory whose record is refused": World(
        happenings=(
            Ask(at=0.2, surface="raw", in_memory=True),
            Ask(at=0.9, surface="raw", in_memory=True),
            StoreFault(at=0.8),
            StoreFault(at=0.1, kind="slow"),
        )
    ),
    # The chat was told every minute that a run goes on which was set aside.
    "a chat that waits for a run that is set aside": World(
        happenings=(
            Ask(
                at=1.0,
                surface="chat",
                said=(Said(faults=(Bad(kind="503", at=73), Bad(at=91), Bad(kind="overloaded", at=45))),),
            ),
            Ask(
                at=0.3,
                surface="chat",
                session=1,
                said=(
                    Said(tool="push", faults=(Bad(kind="end", at=33), Bad(kind="cut", at=47))),
                    Said(faults=(Bad(kind="end", at=66),)),
                ),
            ),
            Kill(at=2.6, back_s=0.5),
            Kill(at=1.5, steps=57, back_s=0.5),
            Kill(at=3.9),
        )
    ),
    # A journal was closed while one of its readers read, which real threads are waited for.
    "a page that is read while the journal closes": World(
        noise=442010766,
        writes_on_loop=True,
        lease_s=6.0,
        happenings=(
            Ask(
                at=0.191,
                session=1,
                said=(Said(words=1, tool="launch", faults=(Bad(kind="overloaded", at=90),)), Said()),
            ),
            Watch(at=4.016, live=True, leaves_after=4, away_s=3.0),
            Leave(at=2.782, back_s=1.5),
            Hang(at=0.594, for_s=4.0),
        ),
    ),
    # A process that ended did not wait for the answer to a request that it had taken, as a server does.
    "a request that comes as the process ends": World(
        noise=360924814,
        writes_on_loop=True,
        happenings=(Ask(at=2.0, surface="sequence"), Ask(at=0.5, surface="sequence"), Hang(at=0.2), Leave(at=0.8)),
    ),
    # A viewer that came while the journal was being closed waited for ever.
    "a viewer that comes while the journal closes": World(
        writes_on_loop=True, happenings=(Ask(at=0.6, session=1), Watch(at=3.9), Leave(at=2.2), Hang(at=1.6))
    ),
    # A run that was begun while its process ended could not be executed any more, and its client got a bug's exception.
    "a run that is begun by a process that ends": World(
        noise=8836326, happenings=(Ask(at=1.6, surface="sequence"), Leave(at=1.0), Hang(at=0.3))
    ),
    # A process that could not give a run back while the disk was full did not do so later, and counted as dead.
    "a run that a full disk kept from being given back": World(
        nodes=2,
        happenings=(
            Ask(at=1.1, said=(Said(tool="push"), Said())),
            Ask(at=0.7),
            Kill(at=1.624),
            StoreFault(at=2.7),
            Kill(at=0.1, steps=99, back_s=1.5),
        ),
    ),
    # The people of the worlds waited for more of a run that was set aside, which real surfaces do not.
    "a viewer of a run that is set aside": World(
        happenings=(
            Ask(at=0.3, said=(Said(faults=(Bad(at=80), Bad(kind="end", at=75), Bad(kind="overloaded", at=99))),)),
            Watch(at=0.3),
            Kill(at=0.1, steps=7, back_s=1.5),
            Kill(at=2.2, back_s=1.5),
            Kill(at=4.3),
        )
    ),
    # A process that had stood still judged its provider by that silence, with the bytes waiting in its socket.
    "an answer that arrived while its process hung": World(
        happenings=(
            Ask(
                at=1.2,
                said=(Said(faults=(Bad(kind="end", at=28), Bad(kind="overloaded", at=43), Bad(kind="slow", at=96))),),
            ),
            Hang(at=3.7),
        )
    ),
    # What an earlier process had spent was not counted in the end of a raw call that another one went on with.
    "usage of a raw call after a crash": World(
        dialect="anthropic",
        happenings=(
            Ask(at=0.902, surface="raw", said=(Said(words=12, faults=(Bad(kind="overloaded", at=67),)),)),
            Kill(at=1.131, steps=76, back_s=0.5),
        ),
    ),
    # A gateway that could not start left its heartbeat behind.
    "tasks of a gateway that could not start": World(
        happenings=(
            Ask(at=2.0, surface="chat", session=1),
            StoreFault(at=0.259, kind="io", for_s=6.0),
            Kill(at=0.271, back_s=2.0),
        )
    ),
    # A run that was given back while storage was away stayed this process's own: its viewers here heard no more of it.
    "viewers of a run that was given back in an outage": World(
        noise=577881817,
        nodes=2,
        dialect="anthropic",
        max_turns=1,
        approval_s=3.0,
        happenings=(
            Ask(at=2.426, node=1, said=(Said(tool_s=3.0),)),
            Ask(
                at=0.582,
                session=1,
                said=(Said(tool="launch", tool_s=3.0, faults=(Bad(kind="503", at=44), Bad(kind="end", at=62))), Said()),
            ),
            Watch(at=3.942, ask=1, node=1, snapshot=True),
            StoreFault(at=2.32, kind="gone", for_s=6.0, after_statements=3),
        ),
    ),
    # A group was refused; what the same run had appended meanwhile was written, and its log had a gap for ever.
    "entries after one that storage refused": World(
        noise=59717830,
        fallback="anthropic",
        max_turns=2,
        approval_s=2.0,
        happenings=(
            Ask(at=0.426, session=1, said=(Said(words=40, tool_s=0.1),)),
            Ask(at=0.831, session=1, said=(Said(words=40, tool_s=1.5),)),
            Ask(
                at=1.037,
                session=1,
                said=(
                    Said(words=40, tool="look", thinks=True),
                    Said(
                        words=12,
                        tool_s=1.5,
                        faults=(Bad(kind="stall", at=73), Bad(kind="overloaded", at=18), Bad(kind="end", at=91), Bad()),
                    ),
                ),
            ),
            Watch(at=1.985, snapshot=True, away_s=0.1),
            Watch(at=1.871, ask=1, pages=True, away_s=3.0),
            StoreFault(at=1.851, kind="slow", for_s=4.0, after_statements=1),
            StoreFault(at=2.307, kind="io", for_s=0.2),
            Kill(at=0.122, steps=14, back_s=1.5),
        ),
    ),
    # The world ended before a process that hung came back, for whose death a run was set aside.
    "a run that is set aside for a process that hangs": World(
        noise=609346583,
        nodes=2,
        lease_s=6.0,
        writes_on_loop=True,
        approval_s=5.0,
        streaming=False,
        resend="look_up",
        mode="stream",
        happenings=(
            Ask(
                at=0.215,
                surface="chat",
                session=1,
                said=(
                    Said(words=0, tool="launch", tool_s=0.1, decision="deny"),
                    Said(words=12, tool="launch"),
                    Said(words=40),
                ),
            ),
            Ask(at=0.48, surface="chat", session=2, queue=True, said=(Said(words=12),)),
            Hang(at=4.224, node=1, for_s=10.0),
            Kill(at=1.518, steps=27, back_s=4.0),
            Kill(at=3.019, node=1, steps=110, back_s=0.5),
        ),
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_stays_mended(name: str) -> None:
    assert simulate(FOUND[name]).broken == ()
