"""A standby that is promoted: the source goes on there if all is there that was read, and says so if it is not."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from psql_streamer.bounded import Call
from psql_streamer.checkpoint.resume import choose_position, require_same_stream
from psql_streamer.checkpoint.store_format import StoredPosition
from psql_streamer.embedded.postgres import EmbeddedPostgres, find_server_binaries
from psql_streamer.errors import PositionRefused, SourceRefused, SourceUnavailable
from psql_streamer.interfaces import Severity
from psql_streamer.lsn import Lsn
from psql_streamer.model import Batch
from psql_streamer.pgoutput.wal_position import WalPosition
from sources.postgres import server_watch
from sources.postgres.source import PostgresSource
from tests import started_source
from tests.database import Database
from tests.naive_pgoutput import NaiveRow
from tests.sections import postgres_section
from tests.service import Service as Process
from tests.source_at_work import read_all, read_until, rows, source_of, start_again, wait_for
from tests.standby import (
    copy_slot,
    database_of,
    dsn_of_both,
    end_and_promote,
    is_slot_kept,
    promote,
    rewind,
    standby_of,
    stop_following,
    synchronized,
    wait_until_it_follows,
)
from tests.tcp_proxy import TcpProxy

pytestmark = pytest.mark.behaviour("R8")

_SCHEMA = "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION p FOR TABLE t;"
_SLOT = "s_postgres"
_OLDEST, _NEWEST = min(find_server_binaries()), max(find_server_binaries())

newer_servers = pytest.mark.skipif(_NEWEST < 17, reason="standbys keep slots since PostgreSQL 17")
standbys_that_are_read = pytest.mark.skipif(_NEWEST < 16, reason="standbys are read from since PostgreSQL 16")


@pytest.fixture
def oldest_postgres() -> Iterator[EmbeddedPostgres]:
    """The oldest server that is here, whose standbys may keep no slots by themselves."""
    with EmbeddedPostgres(find_server_binaries()[_OLDEST]) as server:
        yield server


@dataclass(frozen=True)
class Pair:
    """A primary of which the slot was made, its standby, and the databases of both. before: of the primary."""

    primary: EmbeddedPostgres
    standby: EmbeddedPostgres
    before: Database
    after: Database

    def keep_slot(self) -> None:
        """As it is now."""
        wait_until_it_follows(self.standby, self.primary)
        copy_slot(self.primary, self.standby, _SLOT)

    def fail_over(self) -> None:
        end_and_promote(self.primary, self.standby)


@pytest.fixture
def pair(oldest_postgres: EmbeddedPostgres) -> Iterator[Pair]:
    """Of the oldest server."""
    with standby_of(oldest_postgres) as standby:
        found = Pair(oldest_postgres, standby, database_of(oldest_postgres), database_of(standby))
        make_slot(found.before)
        yield found


class Service:
    """Reads, stores its position and is stopped, as often as it is asked to. rows: what it has read."""

    def __init__(self) -> None:
        self.rows: list[NaiveRow] = []
        self.stored: StoredPosition | None = None
        self._stream: Mapping[str, str] = {}

    def run(self, source: PostgresSource, database: Database) -> None:
        """Until all is stored that is committed now."""
        with self.started(source):
            for batch in read_all(source, database):
                self.take(source, batch)

    def run_into_a_transaction(self, source: PostgresSource) -> None:
        """Until a part of it is stored."""
        with self.started(source):
            for batch in read_until(source, lambda batch: int(batch.position.data["changes"]) > 0):
                self.take(source, batch)

    def take(self, source: PostgresSource, batch: Batch) -> None:
        """Store its position."""
        self.rows += rows([batch])
        self.stored = StoredPosition(batch.position, self._stream)
        source.confirm(batch.position)

    def go_on(self, source: PostgresSource) -> None:
        """As the pipeline does behind a session that ended."""
        assert self.stored is not None
        stream = dict(source.read_stream_identity())
        start_again(source, require_same_stream(source, self.stored.position, self._stream, stream))
        self._stream = stream

    @contextmanager
    def started(self, source: PostgresSource) -> Iterator[None]:
        self._stream = dict(source.read_stream_identity())
        with started_source.started(source, choose_position(source, self.stored, self._stream).position):
            yield


def make_slot(database: Database) -> None:
    database.execute(_SCHEMA)
    make_slot_there(database)


def test_a_source_goes_on_at_a_standby_that_was_promoted_behind_its_position(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    service = Service()
    pair.before.execute("INSERT INTO t VALUES (1, 'one')")
    service.run(source_of(pair.before), pair.before)
    pair.before.execute("INSERT INTO t VALUES (2, 'two')")
    pair.keep_slot()
    pair.fail_over()
    pair.after.execute("INSERT INTO t VALUES (3, 'three')")
    service.run(source_of(pair.after), pair.after)
    assert service.rows == [(b"1", b"one"), (b"2", b"two"), (b"3", b"three")]
    assert service.stored is not None
    assert service.stored.stream["timeline"] == "2"
    assert "the server is on timeline 2, which left timeline 1 at " in caplog.text


def test_a_source_that_has_read_what_the_promoted_server_does_not_have_stops_and_says_where_it_can_go_on(
    pair: Pair,
) -> None:
    service = Service()
    pair.keep_slot()
    stop_following(pair.standby)
    pair.before.execute("INSERT INTO t VALUES (1, 'lost')")
    service.run(source_of(pair.before), pair.before)
    pair.fail_over()
    pair.after.execute("INSERT INTO t VALUES (1, 'one')")
    with pytest.raises(PositionRefused, match=r"the server left timeline 1 at .* not on this server") as refused:
        service.run(source_of(pair.after), pair.after)
    [there] = re.findall('walPositionOverride = "(.*?)"', refused.value.remedy)
    service.run(source_of(pair.after, walPositionOverride=there), pair.after)
    assert service.rows == [(b"1", b"lost"), (b"1", b"one")]


def test_wal_without_changes_that_the_promoted_server_does_not_have_is_no_loss(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    service = Service()
    with started_through_proxy(pair, service) as (proxy, source):
        stop_following(pair.standby)
        end = pair.before.value("SELECT pg_current_wal_insert_lsn()::text")
        pair.before.execute("CREATE TABLE of_others (id int); INSERT INTO of_others VALUES (1)")
        for batch in read_until(source, lambda batch: WalPosition.from_position(batch.position).lsn > Lsn.parse(end)):
            service.take(source, batch)
        pair.fail_over()
        pair.after.execute("INSERT INTO t VALUES (2, 'two')")
        proxy.target = pair.standby.port
        service.go_on(source)
        read_rows_until(service, source, 2)
        pair.after.execute("INSERT INTO t VALUES (3, 'three')")
    service.run(source_of(pair.after), pair.after)
    assert service.rows == [(b"1", b"one"), (b"2", b"two"), (b"3", b"three")]


def test_what_was_read_is_stored_before_the_source_goes_back_and_its_figures_are_of_the_promoted_server(
    pair: Pair,
) -> None:
    service = Service()
    with started_through_proxy(pair, service) as (proxy, source):
        stop_following(pair.standby)
        pair.before.query("SELECT pg_switch_wal()")
        end = Lsn.parse(pair.before.value("SELECT pg_current_wal_insert_lsn()::text"))
        pair.before.execute("CREATE TABLE of_others (id int)")
        read = read_until(source, lambda batch: WalPosition.from_position(batch.position).lsn > end)
        assert service.stored is not None
        service.stored = replace(service.stored, position=read[-1].position)
        pair.fail_over()
        proxy.target = pair.standby.port
        says = f"the stream goes on at .*, on timeline 2, when all that was read up to {read[-1].position} is stored"
        with pytest.raises(SourceUnavailable, match=says):
            service.go_on(source)
        source.confirm(read[-1].position)
        service.go_on(source)
        pair.after.execute("INSERT INTO t VALUES (2, 'two')")
        read_rows_until(service, source, 2)
        figures = source.stats()
        assert figures["received_lsn"] < end
        wait_for(lambda: source.stats()["server_lsn"] < end, "a look at the promoted server")
        assert source.stats()["lag_bytes"] < 100_000
    assert service.rows == [(b"1", b"one"), (b"2", b"two")]


def test_a_service_goes_back_to_where_the_promoted_server_left_and_stores_that(pair: Pair, tmp_path: Path) -> None:
    with TcpProxy(pair.primary.port) as proxy:
        section = postgres_section(
            pair.before, dsn=proxy.dsn(pair.before.dsn), startRetryInterval="100ms", replicationSlot=_SLOT
        )
        with Process(tmp_path, f'{section}[sink.s]\ntype = "stub_discard"\nsources = ["db1"]\n') as service:
            service.start()
            service.until_durable(pair.before)
            pair.keep_slot()
            stop_following(pair.standby)
            pair.before.execute("CREATE TABLE of_others (id int); INSERT INTO of_others VALUES (1)")
            end = Lsn.parse(pair.before.value("SELECT pg_current_wal_insert_lsn()::text"))
            service.until(lambda: stored_lsn(service) >= end, "the position to go on by itself")
            pair.fail_over()
            proxy.target = pair.standby.port
            service.until(lambda: stored_lsn(service) < end, "the service to go back")
            pair.after.execute("INSERT INTO t VALUES (2, 'two')")
            service.until_durable(pair.after)
            assert service.stop() == 0


def test_a_primary_of_before_that_lives_on_is_left_when_the_address_leads_to_the_promoted_server(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_watch, "_SERVER_LOOK_SECONDS", 0.2)
    monkeypatch.setattr(server_watch, "WATCH_SESSION_SECONDS", 1.0)
    service = Service()
    with started_through_proxy(pair, service) as (proxy, source):
        promote(pair.standby)
        pair.after.execute("INSERT INTO t VALUES (2, 'two')")
        proxy.target = pair.standby.port
        says = "the dsn leads to a primary on timeline 2 now, and the stream came from a server on timeline 1"
        with pytest.raises(SourceUnavailable, match=says):
            read_until(source, lambda batch: not batch.idle, timeout=20.0)
        service.go_on(source)
        read_rows_until(service, source, 2)
    assert service.rows == [(b"1", b"one"), (b"2", b"two")]


def test_two_servers_that_were_promoted_to_timelines_of_one_number_are_told_apart(pair: Pair) -> None:
    service = Service()
    with standby_of(pair.primary, slot="other") as other:
        pair.before.query("SELECT pg_drop_replication_slot(%s)", _SLOT)  # it began in front of this standby
        make_slot_there(pair.before)
        pair.keep_slot()
        wait_until_it_follows(other, pair.primary)
        copy_slot(pair.primary, other, _SLOT)
        promote(other)
        pair.before.execute("INSERT INTO t VALUES (1, 'one')")
        wait_until_it_follows(pair.standby, pair.primary)
        elsewhere = database_of(other)
        for number in range(20):
            elsewhere.execute("INSERT INTO t VALUES (%s, 'elsewhere')", number)
        pair.fail_over()
        pair.after.execute("INSERT INTO t VALUES (2, 'two')")
        service.run(source_of(pair.after), pair.after)
        says = "the server left timeline 1 at .* on another server, which left it at "
        with pytest.raises(PositionRefused, match=says) as refused:
            service.run(source_of(elsewhere), elsewhere)
        [there] = re.findall('walPositionOverride = "(.*?)"', refused.value.remedy)
        assert f"the server left timeline 1 at {there}" in refused.value.what
        service.run(source_of(elsewhere, walPositionOverride=there), elsewhere)
    assert service.rows[:2] == [(b"1", b"one"), (b"2", b"two")]
    assert len(service.rows) == 2 + 20


def test_a_transaction_of_which_a_part_was_read_and_that_is_lost_stops_the_source(pair: Pair) -> None:
    service = Service()
    pair.keep_slot()
    stop_following(pair.standby)
    pair.before.execute("INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 10000) i")
    service.run_into_a_transaction(source_of(pair.before, batchSize=100))
    pair.fail_over()
    with pytest.raises(PositionRefused, match="what was committed in between is not on this server"):
        service.run(source_of(pair.after), pair.after)


def test_the_primary_of_before_a_failover_is_refused(pair: Pair) -> None:
    service = Service()
    pair.keep_slot()
    promote(pair.standby)
    pair.after.execute("INSERT INTO t VALUES (1, 'one')")
    service.run(source_of(pair.after), pair.after)
    with pytest.raises(PositionRefused, match="timeline 1, which does not go back to timeline 2"):
        service.run(source_of(pair.before), pair.before)


def test_a_primary_that_was_rewound_and_promoted_again_is_followed_to_the_third_timeline(
    oldest_postgres: EmbeddedPostgres,
) -> None:
    service, first, before = Service(), oldest_postgres, database_of(oldest_postgres)
    rewindable = {"wal_log_hints": "on", "full_page_writes": "on", "wal_keep_size": "256MB"}
    first.settings.update(rewindable)
    first.restart()
    with standby_of(first, rewindable) as second:
        after = database_of(second)
        make_slot(before)
        service.run(source_of(before), before)
        wait_until_it_follows(second, first)
        copy_slot(first, second, _SLOT)
        promote(second)
        before.execute("INSERT INTO t VALUES (1, 'read by nobody')")
        after.execute("INSERT INTO t VALUES (1, 'one')")
        service.run(source_of(after), after)
        rewind(first, second)
        wait_until_it_follows(first, second)
        copy_slot(second, first, _SLOT)
        after.execute("INSERT INTO t VALUES (2, 'two')")
        wait_until_it_follows(first, second)
        end_and_promote(second, first)
        before.execute("INSERT INTO t VALUES (3, 'three')")
        service.run(source_of(before), before)
    assert service.rows == [(b"1", b"one"), (b"2", b"two"), (b"3", b"three")]
    assert service.stored is not None
    assert service.stored.stream["timeline"] == "3"


@pytest.mark.skipif(_OLDEST >= 16, reason=f"standbys of PostgreSQL {_OLDEST}, the oldest here, read slots")
def test_a_standby_whose_version_reads_no_slots_is_waited_for(pair: Pair) -> None:
    service = Service()
    service.run(source_of(pair.before), pair.before)
    pair.keep_slot()
    with pytest.raises(SourceUnavailable, match=f'standby, which keeps slot "{_SLOT}" for its promotion'):
        service.run(source_of(pair.after), pair.after)


def test_a_timeline_whose_history_is_not_on_the_server_is_refused(pair: Pair) -> None:
    service = Service()
    service.run(source_of(pair.before), pair.before)
    pair.keep_slot()
    pair.fail_over()
    (pair.standby.data_dir / "pg_wal" / "00000002.history").unlink()
    with pytest.raises(PositionRefused, match=r"timeline 2 and lacks its history, pg_wal/00000002\.history"):
        service.run(source_of(pair.after), pair.after)


@standbys_that_are_read
def test_a_standby_that_is_read_from_and_promoted_is_read_on_also_behind_the_next_start(
    own_postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_watch, "_SERVER_LOOK_SECONDS", 0.2)
    service, primary = Service(), own_postgres
    with standby_of(primary, {"hot_standby_feedback": "on"}) as standby:
        before, after = database_of(primary), database_of(standby)
        before.execute(_SCHEMA)
        make_slot_on(standby, primary)
        source = source_of(after)
        with service.started(source):
            before.execute("INSERT INTO t VALUES (1, 'one')")
            read_rows_until(service, source, 1)
            promote(standby)
            after.execute("INSERT INTO t VALUES (2, 'two')")
            with pytest.raises(SourceUnavailable, match="the standby went on from timeline 1 to 2"):
                read_rows_until(service, source, 1000)
            service.go_on(source)
            after.execute("INSERT INTO t VALUES (3, 'three')")
            read_rows_until(service, source, 3)
        after.execute("INSERT INTO t VALUES (4, 'four')")
        service.run(source_of(after), after)
    assert service.rows == [(b"1", b"one"), (b"2", b"two"), (b"3", b"three"), (b"4", b"four")]


@standbys_that_are_read
def test_a_slot_on_a_standby_waits_for_the_log_of_its_primary_and_says_why_it_was_invalidated(
    own_postgres: EmbeddedPostgres,
) -> None:
    primary = own_postgres
    with standby_of(primary, {"hot_standby_feedback": "on"}) as standby:
        before, after = database_of(primary), database_of(standby)
        before.execute(_SCHEMA)
        wait_until_it_follows(standby, primary)
        source = source_of(after)
        source.read_stream_identity()
        starting = Call(lambda: source.start(None), "start")
        why = "waits for the primary to log which transactions run (an idle one does not: run SELECT pg_log_standby_"
        wait_for(lambda: why in source.status().reason, "the reason")
        before.query("SELECT pg_log_standby_snapshot()")
        wait_for(lambda: starting.wait(0.1, threading.Event()), "the start")
        source.stop()
        primary.settings["wal_level"] = "replica"
        primary.restart()
        lost = "SELECT wal_status = 'lost' FROM pg_replication_slots"
        wait_for(lambda: bool(after.value(lost)), "the standby to invalidate the slot")
        with pytest.raises(PositionRefused, match="wal_level was below logical on the primary"):
            make_slot_there(after)
        assert after.query("SELECT pg_drop_replication_slot(%s)", _SLOT)
        with pytest.raises(SourceRefused, match="set wal_level = logical on the primary"):
            make_slot_there(after)


@newer_servers
def test_slot_failover_waits_for_the_primary_on_a_standby_that_has_a_slot_of_its_own(
    own_postgres: EmbeddedPostgres,
) -> None:
    primary = own_postgres
    with standby_of(primary, {"hot_standby_feedback": "on"}) as standby:
        before, after = database_of(primary), database_of(standby)
        before.execute(_SCHEMA)
        wait_until_it_follows(standby, primary)
        with pytest.raises(SourceUnavailable, match=f'standby on which slot "{_SLOT}" does not exist'):
            make_slot_there(after, slotFailover=True)
        make_slot_on(standby, primary)
        why = f'a standby with a slot "{_SLOT}" of its own'
        with pytest.raises(SourceUnavailable, match=why):
            make_slot_there(after, slotFailover=True)
        assert [why in finding.problem for finding in source_of(after, slotFailover=True).check()] == [True]


@pytest.mark.skipif(_NEWEST < 18, reason="servers give idle slots up since PostgreSQL 18")
def test_a_slot_that_was_idle_for_too_long_is_no_slot_that_kept_too_much_wal(own_postgres: EmbeddedPostgres) -> None:
    database = database_of(own_postgres)
    make_slot(database)
    own_postgres.settings["idle_replication_slot_timeout"] = "1s"
    own_postgres.restart()

    def is_given_up() -> bool:
        with database.session(autocommit=True) as session, session.cursor() as cursor:
            cursor.execute("CHECKPOINT")
        return bool(database.value("SELECT wal_status = 'lost' FROM pg_replication_slots"))

    wait_for(is_given_up, "the server to give the slot up")
    why = "was invalidated: nobody read from it for as long as idle_replication_slot_timeout"
    assert [why in finding.problem for finding in source_of(database).check()] == [True]


@standbys_that_are_read
def test_a_standby_that_lags_behind_what_was_read_is_waited_for(own_postgres: EmbeddedPostgres) -> None:
    service, primary = Service(), own_postgres
    with standby_of(primary, {"hot_standby_feedback": "on"}) as standby:
        before, after = database_of(primary), database_of(standby)
        make_slot(before)
        make_slot_on(standby, primary)
        assert after.value("SELECT count(pg_wal_replay_pause())")
        wait_for(lambda: after.value("SELECT pg_get_wal_replay_pause_state()") == "paused", "the standby to pause")
        before.execute("INSERT INTO t VALUES (1, 'one')")
        service.run(source_of(before), before)
        with pytest.raises(SourceUnavailable, match=r"a standby that has replayed up to .* changes were read up to"):
            service.run(source_of(after), after)


@pytest.mark.soak
@newer_servers
def test_a_slot_that_standbys_keep_is_read_on_when_one_is_promoted(own_postgres: EmbeddedPostgres) -> None:
    """The dsn names both servers; the standby is told of, and left alone, before it is the primary."""
    service, primary = Service(), own_postgres
    with synchronized(primary) as standby:
        before, after = database_of(primary), database_of(standby)
        before.execute(_SCHEMA)

        def source() -> PostgresSource:
            return source_of(before, dsn=dsn_of_both(primary, standby), slotFailover=True)

        service.run(source(), before)
        before.execute("INSERT INTO t VALUES (1, 'one')")
        read_until_kept(service, source(), primary, standby)
        before.execute("INSERT INTO t VALUES (2, 'two')")
        wait_until_it_follows(standby, primary)
        on_standby = source_of(after)
        with pytest.raises(SourceUnavailable, match=f'standby, which keeps slot "{_SLOT}" for its promotion'):
            service.run(on_standby, after)
        assert [finding.problem for finding in on_standby.check()] == [
            f'the server is a standby, which keeps slot "{_SLOT}" for its promotion'
        ]
        end_and_promote(primary, standby)
        after.execute("INSERT INTO t VALUES (3, 'three')")
        service.run(source(), after)
        assert after.value("SELECT failover FROM pg_replication_slots WHERE slot_name = %s", _SLOT) is True
    assert service.rows == [(b"1", b"one"), (b"2", b"two"), (b"3", b"three")]


@newer_servers
def test_a_slot_that_is_not_on_the_standby_yet_is_waited_for(own_postgres: EmbeddedPostgres) -> None:
    service, primary = Service(), own_postgres
    with standby_of(primary) as standby:
        before, after = database_of(primary), database_of(standby)
        make_slot(before)
        before.execute("INSERT INTO t VALUES (1, 'one')")
        service.run(source_of(before), before)
        wait_until_it_follows(standby, primary)
        with pytest.raises(SourceUnavailable, match=f'a standby on which slot "{_SLOT}" does not exist'):
            service.run(source_of(after), after)
        end_and_promote(primary, standby)
        with pytest.raises(PositionRefused, match="does not exist, but changes up to"):
            service.run(source_of(after), after)


@newer_servers
def test_a_slot_that_is_there_is_kept_on_standbys_from_the_next_start_on(
    own_postgres: EmbeddedPostgres, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    database = database_of(own_postgres)
    make_slot(database)
    kept = "SELECT failover FROM pg_replication_slots"
    assert database.value(kept) is False
    source = source_of(database, slotFailover=True)
    assert [finding.remedy for finding in source.check()] == [
        "set synchronized_standby_slots to the physical slots of the standbys that may be promoted"
    ]
    with started_source.started(source):
        assert database.value(kept) is True
    assert f'standbys keep slot "{_SLOT}" from now on' in caplog.text
    with started_source.started(source_of(database)):
        assert database.value(kept) is True, "the slot of one who does not ask for it is left as it is"


@newer_servers
def test_a_slot_that_tables_without_a_key_are_read_with_is_kept_on_standbys(own_postgres: EmbeddedPostgres) -> None:
    database = database_of(own_postgres)
    database.execute(
        "CREATE TABLE keyless (v text); INSERT INTO keyless VALUES ('a'); CREATE PUBLICATION p FOR ALL TABLES"
    )
    with started_source.started(source_of(database, snapshot="initial", slotFailover=True)):
        assert database.value("SELECT failover FROM pg_replication_slots") is True


@pytest.mark.skipif(_OLDEST >= 17, reason=f"standbys of PostgreSQL {_OLDEST}, the oldest here, keep slots")
def test_a_server_that_keeps_no_slots_on_standbys_is_refused(oldest_postgres: EmbeddedPostgres) -> None:
    database = database_of(oldest_postgres)
    database.execute(_SCHEMA)
    source = source_of(database, slotFailover=True)
    says = f"slotFailover needs PostgreSQL 17 or later, and the server is {oldest_postgres.version}"
    assert any(finding.problem.startswith(says) for finding in source.check())
    source.read_stream_identity()
    with pytest.raises(SourceRefused, match=says):
        source.start(None)


@pytest.mark.soak
@newer_servers
def test_a_standby_that_is_away_and_holds_changes_back_is_told_of_and_changes_come_when_it_is_there_again(
    own_postgres: EmbeddedPostgres,
) -> None:
    primary, database = own_postgres, database_of(own_postgres)
    database.execute(_SCHEMA)
    with synchronized(primary) as standby:
        source = source_of(database, slotFailover=True, receiveTimeout="1s")
        with started_source.started(source):
            standby.stop()
            database.execute("INSERT INTO t VALUES (1, 'one')")

            def is_told() -> bool:
                read_nothing(source, 0.1)
                said = source.status()
                return not said.ok and "waits for the standbys of synchronized_standby_slots" in said.reason

            wait_for(is_told, "the reason")
            standby.start()
            assert rows(read_until(source, lambda batch: len(batch) > 0)) == [(b"1", b"one")]
            assert source.status().ok


@newer_servers
@pytest.mark.parametrize(
    ("slot", "why"),
    [("misspelt", 'slot "misspelt" does not exist'), (_SLOT, f'slot "{_SLOT}" is a logical slot, which no standby ')],
)
def test_a_list_of_standbys_that_nobody_can_follow_is_told_of_though_the_server_goes_on_to_answer(
    own_postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch, slot: str, why: str
) -> None:
    monkeypatch.setattr(server_watch, "_SERVER_LOOK_SECONDS", 0.2)
    database = database_of(own_postgres)
    make_slot(database)
    own_postgres.settings["synchronized_standby_slots"] = slot
    own_postgres.restart()
    source = source_of(database, slotFailover=True, receiveTimeout="1s")
    assert any(why in finding.problem and finding.severity is Severity.ERROR for finding in source.check())
    with started_source.started(source):
        database.execute("INSERT INTO t VALUES (1, 'one')")

        def is_told() -> bool:
            read_nothing(source, 0.1)
            return not (said := source.status()).ok and why in said.reason

        wait_for(is_told, "the reason")


@newer_servers
def test_a_server_that_is_shut_down_while_it_waits_for_a_standby_is_connected_to_again(
    own_postgres: EmbeddedPostgres,
) -> None:
    primary, database = own_postgres, database_of(own_postgres)
    database.execute(_SCHEMA)
    with synchronized(primary) as standby:
        source = source_of(database, slotFailover=True)
        with started_source.started(source):
            standby.stop()
            database.execute("INSERT INTO t VALUES (1, 'one')")
            read_nothing(source, 1.0)
            stopping = Call(primary.stop, "stop")
            with pytest.raises(SourceUnavailable):
                read_until(source, lambda batch: len(batch) > 0)
            source.stop()
            wait_for(lambda: stopping.wait(0.1, threading.Event()), "the server to stop")
            primary.start()
            standby.start()
            source.read_stream_identity()
            start_again(source, None)
            assert rows(read_until(source, lambda batch: len(batch) > 0)) == [(b"1", b"one")]


def stored_lsn(service: Process) -> Lsn:
    return Lsn.parse(service.stats()["source.db1"]["stored_position"])


def make_slot_on(standby: EmbeddedPostgres, primary: EmbeddedPostgres) -> None:
    """Which waits until the primary has logged which transactions run."""
    before, after = database_of(primary), database_of(standby)
    wait_until_it_follows(standby, primary)
    making = Call(lambda: make_slot_there(after), "make slot")
    while not making.wait(0.1, threading.Event()):
        before.query("SELECT pg_log_standby_snapshot()")
    making.require_result()


def make_slot_there(database: Database, **options: Any) -> None:
    with started_source.started(source_of(database, **options)):
        pass


@contextmanager
def started_through_proxy(pair: Pair, service: Service) -> Iterator[tuple[TcpProxy, PostgresSource]]:
    """A source that has read one row of the primary, through an address that may lead elsewhere, and whose slot the
    standby keeps.
    """
    with TcpProxy(pair.primary.port) as proxy:
        source = source_of(pair.before, dsn=proxy.dsn(pair.before.dsn))
        with service.started(source):
            pair.before.execute("INSERT INTO t VALUES (1, 'one')")
            read_rows_until(service, source, 1)
            pair.keep_slot()
            yield proxy, source


def read_rows_until(service: Service, source: PostgresSource, count: int) -> None:
    """Until so many rows have been read in all."""

    def are_there() -> bool:
        if (batch := source.read(0.1)) is not None:
            service.take(source, batch)
        return len(service.rows) >= count

    wait_for(are_there, f"{count} rows")


def read_nothing(source: PostgresSource, timeout: float) -> None:
    """At most the position moves."""
    batch = source.read(timeout)
    assert batch is None or not len(batch)


def read_until_kept(
    service: Service, source: PostgresSource, primary: EmbeddedPostgres, standby: EmbeddedPostgres
) -> None:
    with service.started(source):

        def is_kept() -> bool:
            if (batch := source.read(0.1)) is not None:
                service.take(source, batch)
            return is_slot_kept(primary, standby)

        wait_for(is_kept, "the standby to keep the slot")
