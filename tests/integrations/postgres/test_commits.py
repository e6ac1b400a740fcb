"""Group commit: what is written together, fenced, told and how durably; what a failure takes along."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from postgres_server import USER, PostgresServer
from tailrace.errors import JournalError, RunNotFound, RunOwned, StaleEpoch
from tailrace.events import MessageChunk, RunFinished, ToolCallChunk
from tailrace.integrations.postgres.address import Address, Connection, connect, parse_address
from tailrace.integrations.postgres.queries import abandoned_runs
from tailrace.integrations.postgres.store import PostgresJournal
from tailrace.integrations.postgres.wakeups import ANY, Wakeup, channel_of, decoded
from tailrace.ports import Durability, NewRun, Run, Signal
from tailrace.testing.conformance.sample_runs import started, texts_of, written


@pytest.fixture
async def journal(postgres_url: str) -> AsyncIterator[PostgresJournal]:
    journal = await PostgresJournal.open(postgres_url)
    yield journal
    await journal.close()


@asynccontextmanager
async def by_hand(journal: PostgresJournal) -> AsyncIterator[Connection]:
    connection = await connect(journal._address, "test")
    try:
        yield connection
    finally:
        await connection.close()


def statements(journal: PostgresJournal) -> list[str]:
    """What the writer's connection is told from here on."""
    told: list[str] = []
    assert journal._commits._connection is not None
    journal._commits._connection.add_query_logger(lambda record: told.append(" ".join(record.query.split())))
    return told


async def test_a_tick_of_many_runs_is_one_statement(journal: PostgresJournal) -> None:
    runs = [await started(journal, NewRun("call")) for _ in range(100)]
    told = statements(journal)
    for _, lease in runs:
        for text in ("a", "b", "c"):
            journal.append(lease, [MessageChunk(text)])
    await asyncio.gather(*(journal.commit(lease) for _, lease in runs))
    assert len(told) == 1
    for run, _ in runs:
        assert texts_of(await journal.read(run.id)) == ["a", "b", "c"]


async def test_a_group_of_new_runs_is_one_transaction(journal: PostgresJournal) -> None:
    told = statements(journal)
    await asyncio.gather(*(journal.create(NewRun("call")) for _ in range(3)))
    assert [each for each in told if "BEGIN" in each or "COMMIT" in each] == [told[0], told[-1]]


async def test_what_a_group_counts_is_one_statement_at_its_end(journal: PostgresJournal) -> None:
    told = statements(journal)
    adding = [journal.add_to_counters({name: 1.0, "all": 0.5}) for name in ("b", "a", "b")]
    numbers = await asyncio.gather(*adding)
    assert numbers == [{"b": 1, "all": 0.5}, {"a": 1, "all": 1}, {"b": 2, "all": 1.5}]
    assert ["INTO counters" in each for each in told].index(True) == len(told) - 2
    assert sum("INTO counters" in each for each in told) == 1


async def waiting_for_a_lock(connection: Connection, journal: PostgresJournal) -> None:
    """Returns when the journal's writer waits for what another transaction holds."""
    name = f"tailrace writer {journal._commits.token}"
    while not await connection.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'", name
    ):
        pass


async def test_processes_that_count_in_opposite_orders_never_wait_for_each_other(
    journal: PostgresJournal, postgres_url: str
) -> None:
    """The counters of a group are taken in the order of their names, whatever the order of the calls: while one process
    waits for the first, it holds none of the others, so a second process that comes in another order can pass."""
    await journal.add_to_counters({"c/a": 0, "c/b": 0})
    other = await PostgresJournal.open(postgres_url)
    try:
        async with by_hand(journal) as connection:
            async with connection.transaction():
                await connection.execute("SELECT 1 FROM counters WHERE name = 'c/a' FOR UPDATE")
                first = asyncio.gather(journal.add_to_counters({"c/b": 1}), journal.add_to_counters({"c/a": 1}))
                async with asyncio.timeout(30):
                    await waiting_for_a_lock(connection, journal)
                    assert await other.add_to_counters({"c/b": 1}) == {"c/b": 1}
                    second = asyncio.gather(other.add_to_counters({"c/a": 1}), other.add_to_counters({"c/b": 1}))
                    await waiting_for_a_lock(connection, other)
            async with asyncio.timeout(30):
                await asyncio.gather(first, second)
            deadlocks = await connection.fetchval(
                "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
            )
            assert deadlocks == 0
        assert await journal.counters("c/") == {"c/a": 2, "c/b": 3}
    finally:
        await other.close()


async def test_old_counters_that_another_process_changes_are_left_to_the_next_time(journal: PostgresJournal) -> None:
    await journal.add_to_counters({"r/1": 1, "r/2": 1, "r/3": 1})
    async with by_hand(journal) as connection:
        async with connection.transaction():
            await connection.execute("SELECT 1 FROM counters WHERE name = 'r/2' FOR UPDATE")
            async with asyncio.timeout(30):
                await journal.remove_counters("r/", "r/3")
        assert await journal.counters("r/") == {"r/2": 1, "r/3": 1}
    await journal.remove_counters("r/", "r/3")
    assert await journal.counters("r/") == {"r/3": 1}


@asynccontextmanager
async def notifications(journal: PostgresJournal) -> AsyncIterator[list[Wakeup]]:
    """What every other process is told in the block; complete when it ends."""
    told: list[Wakeup] = []
    async with by_hand(journal) as connection:
        done = asyncio.Event()

        def on_notify(_connection: object, _pid: int, _channel: str, payload: object) -> None:
            if payload == "end":
                done.set()
            else:
                told.append(decoded(str(payload)))

        await connection.add_listener(channel_of(journal._address), on_notify)
        yield told
        await connection.execute(f"NOTIFY \"{channel_of(journal._address)}\", 'end'")  # they come in order of commits
        await done.wait()
        await connection.remove_listener(channel_of(journal._address), on_notify)


async def test_a_group_is_told_once_and_names_the_runs_that_grew(journal: PostgresJournal) -> None:
    runs = [await started(journal, NewRun("call")) for _ in range(100)]
    async with notifications(journal) as told:
        for _, lease in runs:
            journal.append(lease, [MessageChunk("a"), MessageChunk("b")])
        await asyncio.gather(*(journal.commit(lease) for _, lease in runs))
    (wakeup,) = told
    assert sorted(wakeup.grown) == sorted(run.id for run, _ in runs)
    assert (wakeup.signalled, wakeup.values_changed) == ((), False)


async def test_a_group_of_more_runs_than_can_be_named_is_told_in_general(journal: PostgresJournal) -> None:
    runs = [await started(journal, NewRun("call")) for _ in range(400)]
    async with notifications(journal) as told:
        for _, lease in runs:
            journal.append(lease, [MessageChunk("a")])
        await asyncio.gather(*(journal.commit(lease) for _, lease in runs))
    assert [list(wakeup.grown) for wakeup in told] == [[ANY]]


async def test_a_signal_is_told_and_what_nobody_waits_for_is_not(journal: PostgresJournal) -> None:
    run, lease = await started(journal)
    async with notifications(journal) as told:
        await journal.renew(lease)
        await journal.create(NewRun("call"))
        await journal.signal(run.id, Signal("stop"))
        await journal.swap_value("n", "k", None, b"1")
    assert [(wakeup.grown, wakeup.signalled, wakeup.values_changed) for wakeup in told] == [
        ((), [run.id], False),
        ((), (), True),
    ]


async def waits_for_a_lock(connection: Connection) -> None:
    while not await connection.fetchval(  # noqa: ASYNC110 - the server tells nobody
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name LIKE 'tailrace w%'"
    ):
        await asyncio.sleep(0)


async def test_I101_a_claim_in_flight_fences_the_append_that_waits_for_it(journal: PostgresJournal) -> None:
    """The fence is in the statement: it sees the claim that was committed after the statement began."""
    run, lease = await started(journal)
    other_run, other_lease = await started(journal)
    async with by_hand(journal) as claimant, by_hand(journal) as onlooker:
        async with claimant.transaction():
            await claimant.execute("UPDATE heads SET epoch = 2, owner = 'they' WHERE num = 1")
            journal.append(lease, [MessageChunk("late")])
            journal.append(other_lease, [MessageChunk("fine")])
            committing = asyncio.ensure_future(journal.commit(lease))
            await waits_for_a_lock(onlooker)
        with pytest.raises(StaleEpoch, match="they claimed it"):
            await committing
    await journal.commit(other_lease)
    assert texts_of(await journal.read(run.id)) == []
    assert texts_of(await journal.read(other_run.id)) == ["fine"]


async def test_I101_a_claim_waits_for_the_append_in_flight_and_sees_it(journal: PostgresJournal) -> None:
    run, lease = await started(journal)
    async with by_hand(journal) as appending, by_hand(journal) as onlooker:
        theirs = await PostgresJournal.open(f"{journal._address.dsn}?schema={journal._address.schema}")
        async with appending.transaction():
            await appending.fetch("SELECT FROM heads WHERE num = 1 FOR NO KEY UPDATE")
            await appending.execute("UPDATE heads SET lease_until = 0 WHERE num = 1")
            claiming = asyncio.ensure_future(theirs.claim(run.id, "they"))
            await waits_for_a_lock(onlooker)
            await appending.execute("UPDATE heads SET owner = 'another', lease_until = wall_clock(NULL) + 30")
        with pytest.raises(RunOwned, match="another"):
            await claiming
        await theirs.close()
    with pytest.raises(StaleEpoch, match="another claimed it"):
        await journal.renew(lease)


async def test_an_epoch_that_was_given_out_twice_has_one_writer(journal: PostgresJournal) -> None:
    """A server that was promoted without the newest commits does not know of the claim and gives its epoch again."""
    run, lease = await started(journal)
    async with by_hand(journal) as promoted:
        await promoted.execute("UPDATE heads SET owner = 'they', state = 'running'")
    journal.append(lease, [MessageChunk("mine")])
    with pytest.raises(StaleEpoch, match="they claimed it"):
        await journal.commit(lease)
    with pytest.raises(StaleEpoch):
        await journal.renew(lease)
    assert texts_of(await journal.read(run.id)) == []
    assert (await journal.get(run.id)).owner == "they"


async def lose_newest(journal: PostgresJournal) -> None:
    async with by_hand(journal) as promoted:
        await promoted.execute("DELETE FROM batches AS b WHERE b.first_seq = (SELECT max(first_seq) FROM batches)")


async def test_entries_are_not_written_after_a_gap_and_the_run_goes_on_where_its_log_ends(
    journal: PostgresJournal, caplog: pytest.LogCaptureFixture
) -> None:
    run, lease = await started(journal)
    for text in ("kept", "lost"):
        journal.append(lease, [MessageChunk(text)])
        await journal.commit(lease)
    await lose_newest(journal)
    journal.append(lease, [MessageChunk("after the gap")])
    with pytest.raises(StaleEpoch, match="entries before 4 that were committed are not there"):
        await journal.commit(lease)
    assert f"run {run.id}: entries before 4 that were committed are not there" in caplog.text
    await journal.release(lease)
    again = await journal.claim(run.id, "they")
    journal.append(again, [MessageChunk("goes on")])
    await journal.commit(again)
    assert texts_of(await journal.read(run.id)) == ["kept", "goes on"]


async def test_a_run_is_not_sealed_after_a_gap(journal: PostgresJournal) -> None:
    run, lease = await started(journal)
    journal.append(lease, [MessageChunk("lost")])
    await journal.commit(lease)
    await lose_newest(journal)
    with pytest.raises(StaleEpoch, match="not there"):
        await journal.seal(lease, RunFinished("completed", "lost"))
    assert (await journal.get(run.id)).state == "running"


async def test_one_abandoned_run_is_taken_by_one_of_many(postgres_url: str) -> None:
    journals = [await PostgresJournal.open(postgres_url) for _ in range(4)]
    runs = [await journals[0].create(NewRun("call")) for _ in range(40)]

    async def take(journal: PostgresJournal, owner: str) -> list[str]:
        taken = []
        for run in await journal.orphans():
            try:
                taken.append((await journal.claim(run.id, owner)).run_id)
            except RunOwned:
                continue
        return taken

    taken = await asyncio.gather(*(take(journal, f"owner {number}") for number, journal in enumerate(journals)))
    assert sorted(run_id for some in taken for run_id in some) == sorted(run.id for run in runs)
    assert await journals[0].orphans() == []
    for journal in journals:
        await journal.close()


async def test_a_run_that_is_being_claimed_is_no_orphan(journal: PostgresJournal) -> None:
    runs = [await journal.create(NewRun("call")) for _ in range(2)]
    async with by_hand(journal) as claimant, claimant.transaction():
        await claimant.fetch("SELECT FROM heads WHERE num = 1 FOR NO KEY UPDATE")
        assert [run.id for run in await journal.orphans()] == [runs[1].id]
    assert [run.id for run in await journal.orphans()] == [run.id for run in runs]


async def test_L171_processes_that_look_at_once_hide_no_run_from_each_other(journal: PostgresJournal) -> None:
    """Each leaves some to the other: a run that is hidden from that one waits for the next look, a third of a lease."""
    runs = [await journal.create(NewRun("call")) for _ in range(2)]
    async with by_hand(journal) as other, other.transaction():
        for found in (await abandoned_runs(other, None), await journal.orphans()):
            assert [run.id for run in found] == [run.id for run in runs]


@pytest.mark.parametrize("event", [MessageChunk("\ud800"), ToolCallChunk("t", args={"x": object()})])
async def test_what_cannot_be_encoded_fails_its_own_run_alone(
    journal: PostgresJournal, event: MessageChunk | ToolCallChunk
) -> None:
    _, bad = await started(journal)
    good_run, good = await started(journal)
    journal.append(bad, [event])
    journal.append(good, [MessageChunk("fine")])
    with pytest.raises(JournalError, match="cannot be written as JSON"):
        await journal.commit(bad)
    await journal.commit(good)
    assert texts_of(await journal.read(good_run.id)) == ["fine"]


async def test_text_that_postgresql_has_no_word_for_fails_its_own_call_alone(journal: PostgresJournal) -> None:
    begun = await asyncio.gather(
        journal.create(NewRun("call", session="a\0b")),
        journal.create(NewRun("call", session="fine")),
        journal.swap_value("n", "\ud800", None, b"1"),
        journal.swap_value("n", "fine", None, b"1"),
        return_exceptions=True,
    )
    assert [type(each) for each in begun] == [JournalError, Run, JournalError, bool]
    assert "the session has a character" in str(begun[0])
    for run_id in ("run_\0", "run_\ud800"):
        for asking in (journal.get(run_id), journal.read(run_id), journal.claim(run_id, "me"), journal.facts(run_id)):
            with pytest.raises(RunNotFound):
                await asking
    assert await journal.runs(session="a\0b") == []
    assert await journal.get_value("n", "\0") is None


async def test_a_statement_that_fails_fails_its_own_call_alone(journal: PostgresJournal) -> None:
    async def broken(connection: Connection) -> None:
        await connection.execute("SELECT no_such_column FROM heads")

    run, lease = await started(journal)
    journal.append(lease, [MessageChunk("a")])
    failed, created = await asyncio.gather(
        journal._commits.call(broken), journal.create(NewRun("call")), return_exceptions=True
    )
    assert isinstance(failed, JournalError)
    assert isinstance(created, Run)
    await journal.commit(lease)
    assert texts_of(await journal.read(run.id)) == ["a"]


async def test_a_deadlock_between_processes_is_tried_again(journal: PostgresJournal) -> None:
    await started(journal)
    await started(journal)
    async with by_hand(journal) as other:
        await other.execute("SET deadlock_timeout = '10s'")  # so that the journal is the one that is rolled back
        transaction = other.transaction()
        await transaction.start()
        await other.execute("UPDATE heads SET kills = 0 WHERE num = 2")

        async def lock_both(connection: Connection) -> str:
            await connection.execute("UPDATE heads SET kills = 0 WHERE num = 1")
            await connection.execute("UPDATE heads SET kills = 0 WHERE num = 2")
            return "done"

        locking = asyncio.ensure_future(journal._commits.call(lock_both))
        async with by_hand(journal) as onlooker:
            await waits_for_a_lock(onlooker)
        await other.execute("UPDATE heads SET kills = 0 WHERE num = 1")  # waits until the journal was rolled back
        await transaction.commit()
        assert await locking == "done"


async def test_cancelling_a_commit_takes_nothing_back(journal: PostgresJournal) -> None:
    run, lease = await started(journal)
    journal.append(lease, [MessageChunk("a")])
    waiting = asyncio.ensure_future(journal.commit(lease))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    await journal.seal(lease, RunFinished("completed", "a"))
    assert texts_of(await journal.read(run.id)) == ["a"]


async def test_closing_commits_what_is_queued_and_gives_runs_back(postgres_url: str) -> None:
    journal = await PostgresJournal.open(postgres_url)
    run, lease = await started(journal)
    journal.append(lease, [MessageChunk("a")])
    await journal.close()
    with pytest.raises(JournalError, match=r"closed|released"):
        journal.append(lease, [MessageChunk("b")])
    with pytest.raises(JournalError, match="closed"):
        await journal.create(NewRun("call"))
    again = await PostgresJournal.open(postgres_url)
    assert texts_of(await again.read(run.id)) == ["a"]
    assert [orphan.id for orphan in await again.orphans()] == [run.id]  # at once: no lease must run out
    async with by_hand(again) as connection:
        assert await connection.fetchval("SELECT count(*) FROM writers") <= 1
    await again.close()


@pytest.mark.parametrize(
    ("set_to", "committed", "fsync"),
    [
        ("off", "local", "on"),
        ("local", "local", "on"),
        ("remote_write", "remote_write", "on"),
        ("on", "on", "on"),
        ("remote_apply", "remote_apply", "remote_apply"),
    ],
)
async def test_no_commit_is_acknowledged_before_it_is_flushed(
    postgres_server: PostgresServer, set_to: str, committed: str, fsync: str
) -> None:
    role = f"durable_{set_to}"
    postgres_server.sql(f"CREATE ROLE {role} LOGIN SUPERUSER")
    postgres_server.sql(f"ALTER ROLE {role} SET synchronous_commit = {set_to}")
    journal = await PostgresJournal.open(postgres_server.url().replace(USER, role, 1))

    async def setting(durability: Durability) -> str:
        async def show(connection: Connection) -> str:
            return str(await connection.fetchval("SHOW synchronous_commit"))

        return await journal._commits.call(show, fsync=durability == "fsync")

    assert [await setting("committed"), await setting("fsync"), await setting("committed")] == [
        committed,
        fsync,
        committed,
    ]
    run, lease = await started(journal, NewRun("call", durability="fsync"))
    await written(journal, lease, [MessageChunk("a")])
    assert texts_of(await journal.read(run.id)) == ["a"]
    await journal.close()


async def test_a_deleted_run_leaves_no_entry_behind(journal: PostgresJournal) -> None:
    run, lease = await started(journal)
    for number in range(10):
        journal.append(lease, [MessageChunk("x")], attempt=1 + number)
    await journal.seal(lease, RunFinished("completed", "x" * 10))
    await journal.delete(run.id)
    async with by_hand(journal) as connection:
        assert await connection.fetchval("SELECT count(*) FROM batches") == 0


def test_a_wakeup_is_read_as_it_was_written() -> None:
    assert Wakeup("me").encoded() == ""
    for wakeup in (Wakeup("me", ["run_1", "run_2"]), Wakeup("me", (), ["run_1"]), Wakeup("me", values_changed=True)):
        assert decoded(wakeup.encoded()) == wakeup
    assert decoded(Wakeup("me", ["it's"], ["run_1"]).encoded()) == Wakeup("me", [ANY], [ANY])
    assert decoded("from the future").grown == [ANY]


def test_the_address_is_shown_without_user_and_password() -> None:
    address = parse_address("postgresql://ann:hunter2@db:5433/x?sslmode=require&schema=mine")
    assert address == Address("postgresql://ann:hunter2@db:5433/x?sslmode=require", "mine", "db:5433/x")
