"""The database goes away: at each step of a commit, for a while, for long. Nothing is lost, doubled or left waiting."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any

import pytest

from postgres_server import USER, PostgresServer, running
from tailrace.errors import JournalError, StorageFailed
from tailrace.events import MessageChunk, RunFinished
from tailrace.integrations.postgres import commits, readers
from tailrace.integrations.postgres.store import PostgresJournal
from tailrace.journal.key_values import KeyValues
from tailrace.journal.memory_first import MemoryFirst
from tailrace.journal.storage_wait import PATIENCE_S
from tailrace.ports import NewRun, Run, Signal
from tailrace.runs.host import Execution, RunHost
from tailrace.runs.processes import Processes
from tailrace.runs.recovery import ClaimedRun
from tailrace.testing.conformance.sample_runs import everything, started, texts_of, written
from tcp_proxy import Moment, TcpProxy, proxied

MOST_STEPS = 200


@pytest.fixture
async def proxy(postgres_server: PostgresServer) -> AsyncIterator[TcpProxy]:
    async with proxied(postgres_server.port) as proxy:
        yield proxy


@pytest.fixture
async def journal(postgres_server: PostgresServer, proxy: TcpProxy) -> AsyncIterator[PostgresJournal]:
    journal = await PostgresJournal.open(postgres_server.url(port=proxy.port))
    yield journal
    await journal.close()


async def noticed(journal: PostgresJournal) -> None:
    """The writer knows that the database is away."""
    while journal._commits.away is None:  # noqa: ASYNC110 - the journal tells nobody
        await asyncio.sleep(0)


async def whole_run(journal: PostgresJournal, number: int) -> Run:
    """Every kind of write, each once."""
    key = f"key {number}"
    run, lease = await journal.start(NewRun("call", session="s", idempotency_key=key), "me")
    assert lease is not None, "the run that the first try created is this one's"
    for text in ("a", "b"):
        journal.append(lease, [MessageChunk(text)])
        await journal.commit(lease)
    await journal.signal(run.id, Signal("go"))
    assert [signal.name for signal in await journal.signals(lease)] == ["go"]
    counted = await KeyValues(journal, "n", int).update("k", lambda known: (known or 0) + 1)
    assert counted == number + 1
    await journal.renew(lease)
    await journal.release(lease)
    lease = await journal.claim(run.id, "me")
    journal.append(lease, [MessageChunk("c")])
    await journal.seal(lease, RunFinished("completed", "abc"))
    return await journal.get(run.id)


@pytest.mark.parametrize("moment", ["request", "response"])
async def test_I103_a_connection_lost_at_each_step_loses_and_doubles_nothing(
    journal: PostgresJournal, proxy: TcpProxy, moment: Moment
) -> None:
    await whole_run(journal, 0)
    for step in range(MOST_STEPS):
        proxy.lose_at(step, moment)
        async with asyncio.timeout(30):
            run = await whole_run(journal, step + 1)
            entries = await journal.read(run.id)
        assert [entry.seq for entry in entries] == [1, 2, 3, 4, 5]
        assert texts_of(entries) == ["a", "b", "c"]
        assert (run.state, run.kills, run.last_seq) == ("completed", 0, 5)
        if not proxy.fired:
            assert step > 20
            return
    pytest.fail("the steps do not end")


async def test_appends_wait_while_the_database_is_away_and_viewers_see_them_then(
    journal: PostgresJournal, proxy: TcpProxy
) -> None:
    run, lease = await started(journal)
    watching = asyncio.ensure_future(everything(journal.tail(run.id)))
    await written(journal, lease, [MessageChunk("0 ")])
    await proxy.refuse()
    for number in range(1, 100):
        journal.append(lease, [MessageChunk(f"{number} ")])
        await asyncio.sleep(0)
    committing = asyncio.ensure_future(journal.commit(lease))
    await noticed(journal)
    with pytest.raises(StorageFailed, match="cannot be reached"):
        await journal.check()
    assert not committing.done()
    await proxy.accept()
    async with asyncio.timeout(30):
        await committing
        output = "".join(f"{number} " for number in range(100))
        await journal.seal(lease, RunFinished("completed", output))
        assert texts_of(await watching) == [f"{number} " for number in range(100)]
        await journal.check()


async def test_who_waits_for_an_answer_is_told_soon_and_nothing_of_it_is_written(
    journal: PostgresJournal, proxy: TcpProxy
) -> None:
    """A run in flight waits for the database; a client does not. What the client was told was not done is not."""

    async def impatient(write: Coroutine[Any, Any, object]) -> None:
        PATIENCE_S.set(0.2)  # on a busy machine no new connection is refused until then, and the old one is the reason
        with pytest.raises(StorageFailed, match=r"cannot be reached: connection (refused|was closed)"):
            await write

    run, lease = await started(journal)
    await proxy.refuse()
    journal.append(lease, [MessageChunk("a")])
    committing = asyncio.ensure_future(journal.commit(lease))
    async with asyncio.timeout(20):
        async with asyncio.TaskGroup() as group:  # some in the group in flight, some behind it
            for _ in range(2):
                await noticed(journal)
                group.create_task(impatient(journal.start(NewRun("call"), "me")))
                group.create_task(impatient(journal.signal(run.id, Signal("stop"))))
                group.create_task(impatient(journal.swap_value("n", "k", None, b"v")))
                group.create_task(impatient(journal.get(run.id)))
        assert not committing.done()
        await proxy.accept()
        await committing
    assert [found.id for found in await journal.runs()] == [run.id]
    assert await journal._signals_after(run.id, 0) == []
    assert await journal.get_value("n", "k") is None
    await journal.seal(lease, RunFinished("completed", "a"))


async def test_who_waits_behind_hanging_reads_is_told_soon_too(journal: PostgresJournal, proxy: TcpProxy) -> None:
    """Tries to connect to an address that swallows them hold every connection that reads."""
    run, lease = await started(journal)
    await proxy.refuse()
    journal.append(lease, [MessageChunk("a")])
    await noticed(journal)
    places = journal._readers._places
    for _ in range(readers.CONNECTIONS):
        await places.acquire()
    PATIENCE_S.set(0.2)
    async with asyncio.timeout(20):
        with pytest.raises(StorageFailed, match="no answer in time"):
            await journal.get(run.id)
    for _ in range(readers.CONNECTIONS):
        places.release()
    await proxy.accept()


async def test_a_check_says_at_once_why_the_database_is_away(journal: PostgresJournal, proxy: TcpProxy) -> None:
    await proxy.refuse()
    async with asyncio.timeout(5):  # the writer has not noticed yet
        with pytest.raises(StorageFailed, match="connection refused") as refused:
            await journal.check()
    assert "(connection refused)" in refused.value.reason


async def test_the_log_says_once_that_the_database_is_away_and_once_that_it_is_back(
    journal: PostgresJournal, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Although several tasks and runs try all the time, and fail."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(journal._commits, "_wait_s", 0.1)
    host = Waiting(journal, "agent", owner="me", log=logging.getLogger("tailrace.test"), lease_s=0.1)
    async with asyncio.timeout(60):
        async with host, Processes(journal, "me", lease_s=0.1):
            for _ in range(3):
                await host.start_run(NewRun("agent"))
            await proxy.refuse()
            while not journal._commits.failing:  # noqa: ASYNC110 - the journal tells nobody
                await asyncio.sleep(0.01)
        await proxy.accept()  # the runs could not be given back meanwhile
        await journal_is_back(journal)
    said = [record.message for record in caplog.records if record.levelno >= logging.INFO]
    begun, ended = [each for each in said if "PostgreSQL" in each]
    assert "cannot be reached: " in begun
    assert re.search(r"is back after \d+\.\d s$", ended)


async def test_the_log_says_the_same_where_nothing_is_written(
    journal: PostgresJournal, proxy: TcpProxy, caplog: pytest.LogCaptureFixture
) -> None:
    await proxy.refuse()
    async with asyncio.timeout(60):
        PATIENCE_S.set(0.05)
        for _ in range(3):
            with pytest.raises(StorageFailed) as caught:
                await journal.orphans()
            assert caught.value.announced
        await proxy.accept()
        PATIENCE_S.set(None)
        for _ in range(2):
            await journal.orphans()
    begun, ended = [record.message for record in caplog.records if "PostgreSQL" in record.message]
    assert "cannot be reached: " in begun
    assert re.search(r"is back after \d+\.\d s$", ended)


async def test_the_log_says_the_same_of_a_database_that_hangs(
    journal: PostgresJournal, proxy: TcpProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """As soon as a client was told so: a write in flight may have been done, and is waited for."""
    _, lease = await started(journal)
    async with asyncio.timeout(10):
        proxy.hold()
        journal.append(lease, [MessageChunk("a")])
        committing = asyncio.ensure_future(journal.commit(lease))
        while journal._commits._attempt_began is None:  # noqa: ASYNC110 - the journal tells nobody
            await asyncio.sleep(0)
        PATIENCE_S.set(0.05)
        for _ in range(2):
            with pytest.raises(StorageFailed, match="no answer in time") as caught:
                await journal.start(NewRun("call"), "me")
            assert caught.value.announced
        proxy.go_on()
        await committing
    begun, ended = [record.message for record in caplog.records if "PostgreSQL" in record.message]
    assert "cannot be reached: no answer in time; trying again" in begun
    assert re.search(r"is back after \d+\.\d s$", ended)


async def test_I102_a_run_that_could_not_be_given_back_is_when_the_database_is_back(
    journal: PostgresJournal, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before its lease runs out, and it does not count as a death."""
    monkeypatch.setattr(journal._commits, "_wait_s", 0.1)
    run, lease = await started(journal)
    await proxy.refuse()
    async with asyncio.timeout(30):
        await _refused(journal.release(lease))
        await proxy.accept()
        await journal_is_back(journal)
        while (await journal.get(run.id)).state != "pending":  # noqa: ASYNC110 - the journal tells nobody
            await asyncio.sleep(0)
    assert (await journal.claim(run.id, "another")).epoch == 2
    assert (await journal.get(run.id)).kills == 0


class Waiting(RunHost[Execution]):
    """Its runs wait for ever."""

    def _execution(self, _claimed: ClaimedRun) -> Execution:
        return self

    async def run(self) -> RunFinished | None:
        await asyncio.Event().wait()
        return None


async def _refused(call: Coroutine[Any, Any, object]) -> None:
    with pytest.raises(JournalError):
        await call


async def journal_is_back(journal: PostgresJournal) -> None:
    while True:
        try:
            await journal.check()
        except StorageFailed:
            await asyncio.sleep(0.01)  # between two tries to connect
        else:
            return


async def test_a_run_is_given_back_when_the_database_is_away_for_too_long(
    journal: PostgresJournal, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, lease = await started(journal)
    viewer = journal.tail(run.id)
    await anext(viewer)
    monkeypatch.setattr(journal._commits, "_wait_s", 0.1)
    monkeypatch.setattr(readers, "RETRY_FOR_S", 0.1)
    await proxy.refuse()
    journal.append(lease, [MessageChunk("lost")])
    async with asyncio.timeout(30):
        with pytest.raises(StorageFailed, match="cannot be reached") as refused:
            await journal.commit(lease)
        assert "127.0.0.1" not in refused.value.reason
        with pytest.raises(StorageFailed):  # not a silent stream (L144)
            await anext(viewer)
        with pytest.raises(StorageFailed):
            await journal.check()
        with pytest.raises(StorageFailed):
            await journal._readers.query(lambda connection: connection.fetch("SELECT 1"), retry_for_s=0.1)
        with pytest.raises(StorageFailed):
            journal.append(lease, [MessageChunk("more")])
        await proxy.accept()
        await journal_is_back(journal)
        await journal.release(lease)
        assert [orphan.id for orphan in await journal.orphans()] == [run.id]
        lease = await journal.claim(run.id, "me")
        assert await written(journal, lease, [MessageChunk("a")]) == 2
        await journal.seal(lease, RunFinished("completed", "a"))
        assert texts_of(await everything(viewer)) == ["a"]  # the same viewer goes on


async def test_a_call_that_ended_in_memory_is_recorded_once_or_said_to_be_lost_wherever_the_connection_was_lost(
    journal: PostgresJournal, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory_first = MemoryFirst(journal)
    ended: list[str] = []
    step = 0
    for _ in range(2 * MOST_STEPS):
        _, lease = await memory_first.start(NewRun("call", durability="memory"), "me")
        assert lease is not None
        ended.append(lease.run_id)
        told: asyncio.Future[JournalError | None] = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(journal._commits, "_wait_s", -1.0)  # a commit that is lost is given up at once
        proxy.lose_at(step, "response")
        memory_first.seal_soon(lease, RunFinished("completed"), told.set_result)
        async with asyncio.timeout(30):
            lost = await told
        monkeypatch.undo()
        stored = [run.id for run in await journal.runs() if run.id in ended]
        assert len(stored) == len(set(stored))
        assert lost is not None or lease.run_id in stored
        if proxy.fired:
            step += 1
        elif lost is None:  # and not by the connection that the step before has lost
            assert step > 1
            assert stored
            return
    pytest.fail("the steps do not end")


async def test_what_waits_for_the_database_is_bounded(
    journal: PostgresJournal, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "MAX_ENTRIES_WAITING", 10)
    run, lease = await started(journal)
    await proxy.refuse()
    journal.append(lease, [MessageChunk("first")])
    await noticed(journal)
    journal.append(lease, [MessageChunk("x")] * 10)
    with pytest.raises(StorageFailed):
        journal.append(lease, [MessageChunk("too much")])
    with pytest.raises(StorageFailed):
        journal.append(lease, [])
    await proxy.accept()
    async with asyncio.timeout(30):
        await journal.release(lease)
    assert texts_of(await journal.read(run.id)) == ["first", *["x"] * 10]  # what was taken is written


async def test_wakeups_that_were_missed_are_made_up_for(
    postgres_server: PostgresServer, journal: PostgresJournal, proxy: TcpProxy
) -> None:
    """The listener is away while another process writes and signals."""
    writer = await PostgresJournal.open(postgres_server.url(journal._address.schema))
    run, lease = await started(writer)
    viewer = journal.tail(run.id, after=1)
    own_run, own_lease = await started(journal)
    signalled = asyncio.ensure_future(journal.signals(own_lease))
    watching = asyncio.ensure_future(anext(viewer))
    changed = asyncio.ensure_future(journal.next_value("n", "k", None))
    await asyncio.sleep(0)
    await proxy.refuse()
    await written(writer, lease, [MessageChunk("a")])
    await writer.signal(own_run.id, Signal("stop"))
    await writer.swap_value("n", "k", None, b"1")
    assert not watching.done()
    await proxy.accept()
    async with asyncio.timeout(30):
        assert texts_of(await watching) == ["a"]
        assert [signal.name for signal in await signalled] == ["stop"]
        assert await changed == b"1"
    await writer.close()


@pytest.mark.parametrize("how", ["fast", "immediate", "kill"])
async def test_I105_what_was_seen_survives_a_restart_of_postgresql(how: str) -> None:
    with running(durable=True) as server:
        journal = await PostgresJournal.open(server.url())
        run, lease = await started(journal)
        seen: list[str] = []
        arrived = asyncio.Event()

        async def watch() -> None:
            async for batch in journal.tail(run.id):
                seen.extend(texts_of(batch))
                if len(seen) > 50:
                    arrived.set()

        watching = asyncio.ensure_future(watch())
        texts = [f"{number} " for number in range(300)]
        async with asyncio.timeout(120):
            for number, text in enumerate(texts):
                journal.append(lease, [MessageChunk(text)])
                await asyncio.sleep(0)
                if number == 50:
                    await journal.commit(lease)
                    await arrived.wait()
                if number == 100:
                    await asyncio.to_thread(server.kill if how == "kill" else lambda: server.stop(how))
                    shown = list(seen)
                    starting = asyncio.ensure_future(asyncio.to_thread(server.start))
            await starting
            await journal.seal(lease, RunFinished("completed", "".join(texts)))
            await watching
        assert len(shown) > 50
        assert seen == texts
        assert texts_of(await journal.read(run.id)) == texts
        await journal.close()


async def test_a_password_that_is_wrong_for_a_while_is_as_a_database_that_is_away(
    postgres_server: PostgresServer,
) -> None:
    """Nothing is taken for written that was not, and the process goes on when the password is right again."""
    role = f"rotated_{secrets.token_hex(4)}"
    postgres_server.sql(f"CREATE ROLE {role} LOGIN SUPERUSER PASSWORD 'first'")
    postgres_server.require_password(role)
    url = postgres_server.url().replace(f"{USER}@", f"{role}:first@", 1)
    journal = await PostgresJournal.open(url)
    run, lease = await started(journal)
    postgres_server.sql(f"ALTER ROLE {role} PASSWORD 'second'")
    end = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'"  # noqa: S608 - hex
    postgres_server.sql(end)
    journal.append(lease, [MessageChunk("a")])
    committing = asyncio.ensure_future(journal.commit(lease))
    async with asyncio.timeout(30):
        await noticed(journal)
        with pytest.raises(StorageFailed):
            await journal.check()
        assert not committing.done()
        postgres_server.sql(f"ALTER ROLE {role} PASSWORD 'first'")
        await committing
    assert texts_of(await journal.read(run.id)) == ["a"]
    await journal.close()


async def test_closing_does_not_wait_long_for_a_database_that_is_away(
    postgres_server: PostgresServer, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "WAIT_AT_CLOSE_S", 0.05)
    journal = await PostgresJournal.open(postgres_server.url(port=proxy.port))
    _, lease = await started(journal)
    await proxy.refuse()
    journal.append(lease, [MessageChunk("lost")])
    async with asyncio.timeout(60):
        await journal.close()
    with pytest.raises(JournalError):
        journal.append(lease, [MessageChunk("more")])


async def test_I103_what_a_standby_may_not_have_yet_is_not_acknowledged_after_a_lost_connection(
    own_server: PostgresServer,
) -> None:
    """The commit waits for a standby when its connection is lost. The next connection finds it committed, on this
    server alone: it is told to nobody before the standby has it."""

    async def waits_for_a_standby() -> str:
        while not (pid := await asyncio.to_thread(own_server.sql, WAITING)).strip():
            pass
        return pid

    async with proxied(own_server.port) as proxy:
        journal = await PostgresJournal.open(own_server.url(port=proxy.port))
        own_server.sql("ALTER SYSTEM SET synchronous_standby_names = 'absent'")
        own_server.sql("SELECT pg_reload_conf()")
        async with asyncio.timeout(60):
            starting = asyncio.ensure_future(journal.start(NewRun("call", durability="fsync"), "me"))
            first = await waits_for_a_standby()
            proxy.lose_all()
            while await waits_for_a_standby() == first:
                pass
            assert not starting.done()
            own_server.sql("ALTER SYSTEM RESET synchronous_standby_names")
            own_server.sql("SELECT pg_reload_conf()")
            run, _ = await starting
        assert [found.id for found in await journal.runs()] == [run.id]
        await journal.close()


WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    with running() as server:
        yield server
