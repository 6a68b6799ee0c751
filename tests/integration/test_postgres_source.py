"""The `postgres` source on a real server: where it starts, what the server may forget, and what it refuses."""

from __future__ import annotations

import errno
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import psycopg2
import psycopg2.errors
import pytest
from psycopg2.extensions import parse_dsn

from psql_streamer.embedded.postgres import EmbeddedPostgres
from psql_streamer.errors import PositionRefused, SourceError, SourceRefused, SourceUnavailable
from psql_streamer.lsn import Lsn
from psql_streamer.model import Position
from psql_streamer.pgoutput.wal_position import WalPosition
from psql_streamer.pipeline import pipeline
from sources.postgres import server_watch
from sources.postgres import source as postgres_source
from sources.postgres.reader_session import ReaderSession
from tests.database import Database, fresh_database
from tests.frozen_process import freeze
from tests.source_at_work import (
    confirmed_flush_lsn,
    identities,
    read_all,
    read_until,
    read_up_to,
    rows,
    source_of,
    start_again,
    streaming,
    wait_for,
)
from tests.tcp_proxy import TcpProxy

_SCHEMA = """
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE TABLE unpublished (id int);
CREATE PUBLICATION p FOR TABLE t;
"""


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(_SCHEMA)
    return database


def _ids(first: int, last: int) -> list[tuple[bytes, None]]:
    return [(b"%d" % i, None) for i in range(first, last + 1)]


def _insert(database: Database, first: int, last: int) -> None:
    """Rows of one transaction."""
    database.execute("INSERT INTO t SELECT generate_series(%s, %s)", first, last)


def _wal_end(database: Database) -> int:
    return int(database.value("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))


def _refusal(database: Database, kind: type[SourceError], position: Position | None = None, **options: object) -> str:
    """The message with which a start is refused."""
    with pytest.raises(kind) as refused, streaming(database, position, **options):
        pass
    return str(refused.value)


# Where it starts.


def test_the_first_start_makes_the_slot_and_streams_what_is_committed_from_then_on(every_postgres: Database) -> None:
    every_postgres.execute(_SCHEMA)
    _insert(every_postgres, 1, 5)
    with streaming(every_postgres) as source:
        _insert(every_postgres, 6, 9)
        assert rows(read_all(source, every_postgres)) == _ids(6, 9)
        assert source.status().ok


def test_without_a_position_a_restart_begins_where_the_slot_is(shop: Database) -> None:
    with streaming(shop) as source:
        _insert(shop, 1, 3)
        read_all(source, shop)
    with streaming(shop) as source:
        assert rows(read_all(source, shop)) == _ids(1, 3)


@pytest.mark.behaviour("R1")
def test_a_restart_at_a_position_neither_loses_nor_repeats(shop: Database) -> None:
    with streaming(shop) as source:
        _insert(shop, 1, 3)
        position = read_all(source, shop)[-1].position
        _insert(shop, 4, 5)
        read_all(source, shop)
    _insert(shop, 6, 7)
    with streaming(shop, position) as source:
        assert rows(read_all(source, shop)) == _ids(4, 7)


@pytest.mark.behaviour("R4")
def test_a_restart_at_any_position_within_a_large_transaction_goes_on_with_the_next_change(shop: Database) -> None:
    with streaming(shop, batchSize=40) as source:
        _insert(shop, 1, 10)
        _insert(shop, 11, 1000)
        batches = read_all(source, shop)
    everything = identities(batches)
    assert rows(batches) == _ids(1, 1000)
    inside = [i for i, batch in enumerate(batches) if WalPosition.from_position(batch.position).changes]
    assert len(inside) > 20, "the transaction came in pieces"
    for place in (inside[0], inside[1], inside[len(inside) // 2], inside[-1]):
        had = len(identities(batches[: place + 1]))
        with streaming(shop, batches[place].position, batchSize=70) as source:
            assert identities(read_all(source, shop)) == everything[had:]


def test_a_position_within_a_transaction_survives_restarts_that_get_no_further(shop: Database) -> None:
    with streaming(shop, batchSize=40) as source:
        _insert(shop, 1, 1000)
        batches = read_all(source, shop)
    stopped = next(batch.position for batch in batches if WalPosition.from_position(batch.position).changes > 500)
    had = WalPosition.from_position(stopped).changes
    position = stopped
    for _ in range(3):
        with streaming(shop, position, batchSize=40) as source:
            first = source.read(10)
            assert first is not None
            position = first.position
    with streaming(shop, position, batchSize=40) as source:
        assert (
            rows(read_all(source, shop))
            == _ids(had + 1, 1000)[len(_ids(had + 1, WalPosition.from_position(position).changes)) :]
        )


def test_a_restart_at_any_position_around_a_message_loses_no_commit_behind_it(every_postgres: Database) -> None:
    """The commit record begins where the record of a message outside of transactions ends."""
    every_postgres.execute(_SCHEMA)
    with streaming(every_postgres, batchSize=40) as source:
        every_postgres.execute(
            "INSERT INTO t SELECT generate_series(1, 100); SELECT pg_logical_emit_message(false, 'note', '');"
        )
        batches = read_all(source, every_postgres)
    for place, batch in enumerate(batches):
        with streaming(every_postgres, batch.position) as source:
            again = read_all(source, every_postgres)
        assert rows(batches[: place + 1]) + rows(again) == _ids(1, 100), f"restarted at {batch.position}"


@pytest.mark.behaviour("R4")
def test_a_transaction_that_began_before_the_position_and_commits_after_it_is_delivered(shop: Database) -> None:
    with shop.session() as open_one, open_one.cursor() as cursor:
        with streaming(shop, walRetain=0) as source:
            pass
        cursor.execute("INSERT INTO t VALUES (1)")
        with streaming(shop) as source:
            _insert(shop, 2, 2)
            position = read_all(source, shop)[-1].position
            source.confirm(position)
        wait_for(lambda: confirmed_flush_lsn(shop) == WalPosition.from_position(position).lsn, "the confirmation")
        open_one.commit()
    with streaming(shop, position) as source:
        assert rows(read_all(source, shop)) == _ids(1, 1)


def test_a_reconnect_takes_the_position_that_it_is_given(shop: Database) -> None:
    with streaming(shop) as source:
        _insert(shop, 1, 3)
        position = read_all(source, shop)[-1].position
        _insert(shop, 4, 4)
        read_all(source, shop)
        source.start(position)
        assert rows(read_all(source, shop)) == _ids(4, 4)
        assert source.stats()["reconnects"] == 1


# What the server may forget.


@pytest.mark.behaviour("R7")
def test_what_is_confirmed_stays_wal_retain_behind_and_never_goes_back(shop: Database) -> None:
    retain = 4000
    with streaming(shop, walRetain=retain) as source:
        start = confirmed_flush_lsn(shop)
        _insert(shop, 1, 1)
        early = read_all(source, shop)[-1].position
        assert WalPosition.from_position(early).lsn - start < retain
        source.confirm(early)
        assert source.stats()["confirmed_lsn"] == start, "not below where the slot began"
        _insert(shop, 2, 1000)
        late = read_all(source, shop)[-1].position
        source.confirm(late)
        wait_for(lambda: confirmed_flush_lsn(shop) == WalPosition.from_position(late).lsn - retain, "the confirmation")
        source.confirm(early)
        _insert(shop, 1001, 1001)
        read_all(source, shop)
        assert source.stats()["confirmed_lsn"] == WalPosition.from_position(late).lsn - retain
    assert confirmed_flush_lsn(shop) == WalPosition.from_position(late).lsn - retain


def test_wal_retain_larger_than_all_wal_confirms_nothing(shop: Database) -> None:
    with streaming(shop, walRetain="100TB") as source:
        start = confirmed_flush_lsn(shop)
        _insert(shop, 1, 100)
        source.confirm(read_all(source, shop)[-1].position)
    assert confirmed_flush_lsn(shop) == start


@pytest.mark.behaviour("R3")
def test_nothing_is_confirmed_that_was_only_received(shop: Database) -> None:
    with streaming(shop) as source:
        start = confirmed_flush_lsn(shop)
        _insert(shop, 1, 1000)
        read_all(source, shop)
    assert confirmed_flush_lsn(shop) == start


def test_a_session_that_comes_to_another_cluster_than_was_asked_before_begins_nothing_there(
    database: Database, own_postgres: EmbeddedPostgres
) -> None:
    database.execute(_SCHEMA)
    with (
        fresh_database(own_postgres.build_dsn(), database.name) as other,
        TcpProxy(int(parse_dsn(database.dsn)["port"])) as proxy,
    ):
        other.execute(_SCHEMA)
        source = source_of(replace(database, dsn=proxy.dsn(database.dsn)))
        fence = source.read_stream_identity()
        proxy.target = own_postgres.port
        with pytest.raises(PositionRefused, match=f'system identifier "{fence["system identifier"]}", now "'):
            source.start(None)
        source.stop()
        assert not other.query("SELECT FROM pg_replication_slots")


def test_the_session_that_streams_is_the_one_whose_cluster_is_looked_at(
    database: Database, own_postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute(_SCHEMA)
    with (
        fresh_database(own_postgres.build_dsn(), database.name) as other,
        TcpProxy(int(parse_dsn(database.dsn)["port"])) as proxy,
    ):
        other.execute(_SCHEMA)
        other.query("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", f"s_{database.name}")
        source = source_of(replace(database, dsn=proxy.dsn(database.dsn)))
        source.read_stream_identity()
        spawn = source._spawn

        def spawn_elsewhere(*arguments: Any) -> ReaderSession:
            """What was asked before was asked of the right one."""
            proxy.target = own_postgres.port
            return spawn(*arguments)

        monkeypatch.setattr(source, "_spawn", spawn_elsewhere)
        with pytest.raises(PositionRefused, match="the server is not the one with which the stream began"):
            source.start(None)
        source.stop()


def test_a_stop_tells_the_server_what_was_confirmed_last(shop: Database) -> None:
    with streaming(shop) as source:
        _insert(shop, 1, 1)
        position = read_all(source, shop)[-1].position
        source.confirm(position)
    assert confirmed_flush_lsn(shop) == WalPosition.from_position(position).lsn


@pytest.mark.behaviour("O5")
def test_traffic_on_unpublished_tables_alone_moves_the_slot_on(every_postgres: Database) -> None:
    every_postgres.execute(_SCHEMA)
    with streaming(every_postgres) as source:
        every_postgres.execute("INSERT INTO unpublished SELECT generate_series(1, 10000)")
        end = _wal_end(every_postgres)
        source.confirm(read_up_to(source, end)[-1].position)
        wait_for(lambda: confirmed_flush_lsn(every_postgres) >= end, "the confirmation")


@pytest.mark.behaviour("R3")
def test_nothing_of_a_transaction_that_is_half_received_is_confirmed(shop: Database) -> None:
    with streaming(shop, batchSize=10) as source:
        _insert(shop, 1, 200)
        batches = read_all(source, shop)
        inside = [batch.position for batch in batches if WalPosition.from_position(batch.position).changes]
        assert len(inside) > 10
        source.confirm(inside[-1])
    assert (
        confirmed_flush_lsn(shop)
        <= WalPosition.from_position(inside[-1]).lsn
        < WalPosition.from_position(inside[-1]).commit_lsn
    )


@pytest.mark.behaviour("O4")
@pytest.mark.parametrize("over", ["socket", "tcp"])
def test_wal_that_is_kept_back_does_not_keep_the_server_from_shutting_down(
    own_postgres: EmbeddedPostgres, over: str
) -> None:
    database = Database("postgres", own_postgres.build_dsn(tcp=over == "tcp"), own_postgres.version)
    database.execute(_SCHEMA)
    with streaming(database, walRetain="1GB") as source:
        _insert(database, 1, 1000)
        source.confirm(read_all(source, database)[-1].position)
        began = time.monotonic()
        own_postgres.stop("fast")
        assert time.monotonic() - began < 20
        with pytest.raises(SourceUnavailable):
            read_up_to(source, 1 << 63)


@pytest.mark.behaviour("O4")
@pytest.mark.parametrize("over", [pytest.param("socket", marks=pytest.mark.soak), "tcp"])
def test_a_server_shuts_down_though_nobody_takes_what_it_sends(own_postgres: EmbeddedPostgres, over: str) -> None:
    database = Database("postgres", own_postgres.build_dsn(tcp=over == "tcp"), own_postgres.version)
    database.execute(_SCHEMA)
    with streaming(database, batchBytes="64KB") as source:
        _insert(database, 0, 0)
        position = read_all(source, database)[-1].position
        database.execute("INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 20000) i")
        began = time.monotonic()
        own_postgres.stop("fast")
        assert time.monotonic() - began < 30
        own_postgres.start()
        with pytest.raises(SourceUnavailable, match="so that it can shut down"):
            read_all(source, database)
        source.start(position)
        assert len(rows(read_all(source, database))) == 20_000


@pytest.mark.behaviour("O4")
def test_a_checkpoint_that_gives_up_a_slot_ends_though_nobody_takes_what_its_walsender_sends(
    own_postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_watch, "_SERVER_LOOK_SECONDS", 0.1)
    monkeypatch.setattr(postgres_source, "_UNREAD_SECONDS", 0.5)
    database = Database("postgres", own_postgres.build_dsn(), own_postgres.version)
    database.execute(_SCHEMA)
    _limit_wal_of_slots(database)
    with streaming(database, batchBytes="64KB") as source:
        _insert(database, 0, 0)
        position = read_all(source, database)[-1].position
        database.execute("INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 20000) i")
        cannot_send = "SELECT FROM pg_stat_activity WHERE wait_event = 'WalSenderWriteData'"
        wait_for(lambda: bool(database.query(cannot_send)), "the walsender to find no room")
        database.query("SELECT pg_switch_wal()")
        database.execute("SET statement_timeout = '30s'; CHECKPOINT")
        with pytest.raises(SourceUnavailable, match="more WAL than max_slot_wal_keep_size, and its stream is not"):
            read_all(source, database)
        said = 'slot "s_postgres": the slot keeps more WAL than max_slot_wal_keep_size'
        assert [message.startswith(said) for message in caplog.messages if "max_slot_wal" in message] == [True]
        with pytest.raises(PositionRefused, match="was invalidated"):
            source.start(position)


# Silence.


@pytest.fixture
def stopped_walsender(own_postgres: EmbeddedPostgres) -> Iterator[Callable[[], None]]:
    """A call stops the walsender of the slot in its tracks; it goes on when the test ends."""
    stopped: list[int] = []

    def stop() -> None:
        with psycopg2.connect(own_postgres.build_dsn()) as session, session.cursor() as cursor:
            cursor.execute("SELECT active_pid FROM pg_replication_slots")
            [(walsender,)] = cursor.fetchall()
        stopped.append(walsender)
        os.kill(walsender, signal.SIGSTOP)

    yield stop
    for walsender in stopped:
        os.kill(walsender, signal.SIGCONT)


def test_a_walsender_that_neither_works_nor_answers_is_a_lost_connection(
    own_postgres: EmbeddedPostgres, stopped_walsender: Callable[[], None]
) -> None:
    own_postgres.settings["wal_sender_timeout"] = "2s"  # after a quarter of it the server is asked to answer
    own_postgres.restart()
    shop = Database("postgres", own_postgres.build_dsn(), own_postgres.version)
    shop.execute(_SCHEMA)
    with streaming(shop, receiveTimeout="1s") as source:
        _insert(shop, 1, 1)
        read_all(source, shop)
        stopped_walsender()
        with pytest.raises(SourceUnavailable, match="not even an answer"):
            read_until(source, lambda _: False)
        assert not source.status().ok


def test_a_walsender_at_work_is_waited_for_and_status_says_so(
    own_postgres: EmbeddedPostgres, stopped_walsender: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_watch, "_IDLE_WAIT_TYPES", set[str]())  # one that is stopped looks idle
    monkeypatch.setattr(server_watch, "_SERVER_LOOK_SECONDS", 0.2)
    shop = Database("postgres", own_postgres.build_dsn(), own_postgres.version)
    shop.execute(_SCHEMA)
    with streaming(shop, receiveTimeout="1s") as source:
        _insert(shop, 1, 1)
        read_all(source, shop)
        stopped_walsender()
        _insert(shop, 2, 2)
        wait_for(lambda: source.read(0.1) is None and not source.status().ok, "the silence to be told")
        said = source.status().reason
        assert "more bytes of WAL, but has sent nothing for" in said
        assert "(its walsender waits for WalSender" in said


def test_an_idle_server_is_asked_in_time_however_short_receive_timeout_is(shop: Database) -> None:
    with streaming(shop, receiveTimeout="1s") as source:
        read_all(source, shop)
        until = time.monotonic() + 3
        while time.monotonic() < until:
            source.read(0.1)
        assert source.status().ok


def test_a_network_that_swallows_everything_is_noticed(database: Database) -> None:
    database.execute(_SCHEMA)
    with TcpProxy(int(parse_dsn(database.dsn)["port"])) as proxy:
        far = replace(database, dsn=proxy.dsn(database.dsn))
        with streaming(far, receiveTimeout="1s") as source:
            read_all(source, database)
            proxy.freeze()
            began = time.monotonic()
            with pytest.raises(SourceUnavailable, match="not even an answer"):
                read_until(source, lambda _: False)
            with pytest.raises(SourceUnavailable):
                source.start(None)
            assert not source.status().ok
            assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    "large_block",
    [
        pytest.param(False, id="idle before", marks=pytest.mark.soak),
        pytest.param(True, id="in the middle of a fast stream"),
    ],
)
def test_a_source_that_nobody_reads_does_not_blame_the_server(shop: Database, large_block: bool) -> None:
    with streaming(shop, batchBytes="256KB", receiveTimeout="1s") as source:
        _insert(shop, 1, 1)
        read_all(source, shop)
        shop.execute("INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(2, 10000) i")
        # With a large block the next one is asked for, which then waits in vain.
        batches = read_until(source, lambda batch: batch.nbytes > 256_000) if large_block else []
        wait_for(lambda: source.stats()["server_lsn"] != source.stats()["received_lsn"], "the server to be ahead")
        time.sleep(2)  # twice as long as it takes to call a server silent
        assert source.status().ok
        assert len(rows(batches + read_all(source, shop))) == 9999


def test_a_source_that_was_sent_nothing_yet_has_received_what_lies_in_front_of_its_position(shop: Database) -> None:
    with streaming(shop) as source:
        _insert(shop, 1, 1)
        position = read_all(source, shop)[-1].position
    with streaming(shop, position) as source:
        stats = source.stats()
        assert stats["received_lsn"] >= stats["stored_lsn"] >= stats["confirmed_lsn"] > 0


def test_what_was_read_and_is_not_stored_counts_as_lag_also_behind_a_reconnect(shop: Database) -> None:
    with streaming(shop) as source:
        _insert(shop, 1, 1)
        stored = read_all(source, shop)[-1].position
        source.confirm(stored)
        _insert(shop, 2, 1000)
        read = read_all(source, shop)[-1].position
        start_again(source, read)  # as the pipeline connects again: where reading got to
        wait_for(lambda: source.stats()["server_lsn"] >= WalPosition.from_position(read).lsn, "the server's end")
        stats = source.stats()
        assert stats["stored_lsn"] == WalPosition.from_position(stored).lsn
        assert stats["lag_bytes"] >= WalPosition.from_position(read).lsn - WalPosition.from_position(stored).lsn


# walPositionOverride.


@pytest.mark.behaviour("R7")
def test_an_override_replays_what_wal_retain_kept(shop: Database) -> None:
    with streaming(shop, walRetain="1GB") as source:
        start = confirmed_flush_lsn(shop)
        _insert(shop, 1, 3)
        batches = read_all(source, shop)
        position = batches[-1].position
        source.confirm(position)
        repeated = identities(batches)
    with streaming(shop, position, walRetain="1GB", walPositionOverride=str(start)) as source:
        assert identities(read_all(source, shop)) == repeated


def test_an_override_before_what_the_slot_can_give_is_refused_with_the_size_of_the_gap(shop: Database) -> None:
    with streaming(shop):
        first = confirmed_flush_lsn(shop)
    wanted = Lsn(first - 1234)
    said = _refusal(shop, PositionRefused, walPositionOverride=str(wanted))
    assert f"walPositionOverride {wanted} is 1234 bytes before {first}" in said
    assert "use a later one" in said


def test_an_override_after_the_end_of_the_wal_is_refused(shop: Database) -> None:
    wanted = Lsn(_wal_end(shop) + (1 << 32))
    said = _refusal(shop, PositionRefused, walPositionOverride=str(wanted))
    assert f"walPositionOverride {wanted} is " in said
    assert "after the end of the server's WAL" in said


@pytest.mark.behaviour("R5")
def test_a_position_before_what_the_slot_can_give_is_refused_with_the_gap_and_the_choices(shop: Database) -> None:
    with streaming(shop):
        first = confirmed_flush_lsn(shop)
    said = _refusal(shop, PositionRefused, WalPosition(Lsn(first - 99)).position)
    assert "99 bytes before" in said
    assert "psql-streamer snapshot start --source db1 --accept-gap" in said
    assert "walPositionOverride" in said


# Slots.


@pytest.mark.behaviour("R5")
def test_a_slot_that_was_dropped_is_not_silently_made_anew(shop: Database) -> None:
    with streaming(shop) as source:
        _insert(shop, 1, 1)
        position = read_all(source, shop)[-1].position
    shop.query("SELECT pg_drop_replication_slot(%s)", f"s_{shop.name}")
    said = _refusal(shop, PositionRefused, position)
    assert f'slot "s_{shop.name}" does not exist' in said
    assert str(WalPosition.from_position(position).lsn) in said
    assert "psql-streamer snapshot start --source db1 --accept-gap" in said
    assert not shop.value("SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s", f"s_{shop.name}")


@pytest.mark.behaviour("R5")
def test_a_slot_whose_wal_the_server_has_removed_is_refused_with_the_setting_that_did_it(
    own_postgres: EmbeddedPostgres,
) -> None:
    database = Database("postgres", own_postgres.build_dsn(), own_postgres.version)
    database.execute(_SCHEMA)
    with streaming(database) as source:
        _insert(database, 1, 1)
        position = read_all(source, database)[-1].position
    _keep_no_wal_for_slots(database)
    said = _refusal(database, PositionRefused, position)
    assert f'slot "s_{database.name}" was invalidated' in said
    assert "the server removed WAL that it needs (max_slot_wal_keep_size)" in said
    assert "psql-streamer snapshot start --source db1 --accept-gap" in said
    assert [finding.problem for finding in source_of(database).check() if finding.problem in said]


def _keep_no_wal_for_slots(database: Database) -> None:
    """Until the slot that nobody reads is lost."""
    _limit_wal_of_slots(database)

    def is_lost() -> bool:
        database.query("SELECT pg_logical_emit_message(false, 'filler', ''), pg_switch_wal()")
        database.execute("CHECKPOINT")
        return bool(database.value("SELECT wal_status = 'lost' FROM pg_replication_slots"))

    wait_for(is_lost, "the server to give the slot up")


def _limit_wal_of_slots(database: Database) -> None:
    """To none: less than a segment is that."""
    with database.session(autocommit=True) as session, session.cursor() as cursor:
        cursor.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
        cursor.execute("SELECT pg_reload_conf()")


def test_a_slot_of_another_plugin_is_refused(every_postgres: Database) -> None:
    every_postgres.execute(_SCHEMA)
    try:
        every_postgres.query(
            "SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", f"s_{every_postgres.name}"
        )
    except psycopg2.errors.UndefinedFile:
        pytest.skip("this server was installed without another output plugin")
    said = _refusal(every_postgres, SourceRefused)
    assert 'was created for the output plugin "test_decoding"' in said
    assert "replicationSlot" in said


def test_a_physical_slot_is_refused(shop: Database) -> None:
    name = f"ph_{shop.name}"
    shop.query("SELECT pg_create_physical_replication_slot(%s)", name)
    try:
        said = _refusal(shop, SourceRefused, replicationSlot=name)
    finally:
        shop.query("SELECT pg_drop_replication_slot(%s)", name)
    assert f'slot "{name}"' in said
    assert "is a physical slot" in said


def test_a_slot_of_another_database_is_refused(shop: Database, postgres: str) -> None:
    elsewhere = Database("postgres", postgres, shop.version)
    name = f"elsewhere_{shop.name}"
    elsewhere.query("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", name)
    try:
        said = _refusal(shop, SourceRefused, replicationSlot=name)
    finally:
        elsewhere.query("SELECT pg_drop_replication_slot(%s)", name)
    assert f'belongs to the database "postgres", not to "{shop.name}"' in said


def test_a_slot_in_use_names_who_uses_it_and_is_tried_again(shop: Database) -> None:
    with streaming(shop):
        pid = shop.value("SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", f"s_{shop.name}")
        said = _refusal(shop, SourceUnavailable)
    assert f'slot "s_{shop.name}" is active for PID {pid}' in said
    with streaming(shop) as source:
        assert source.status().ok


# What the server must have.


def test_a_missing_publication_is_refused_with_the_command_that_makes_it(shop: Database) -> None:
    said = _refusal(shop, SourceRefused, publication=["p", "nowhere"])
    assert f'publication "nowhere" does not exist in the database "{shop.name}"' in said
    assert 'CREATE PUBLICATION "nowhere"' in said
    assert not shop.value("SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s", f"s_{shop.name}")


def test_a_publication_that_nearly_exists_is_named_before_anybody_makes_another_one(shop: Database) -> None:
    said = _refusal(shop, SourceRefused, publication="P")
    assert f'publication "P" does not exist in the database "{shop.name}"; did you mean p?: correct the name' in said
    shop.execute("DROP PUBLICATION p")
    said = _refusal(shop, SourceRefused, publication='a "quoted" one')
    assert said.endswith(': create it: CREATE PUBLICATION "a ""quoted"" one" FOR ALL TABLES')


def test_a_publication_that_was_dropped_stops_the_source_with_its_name(every_postgres: Database) -> None:
    database = every_postgres
    database.execute(_SCHEMA)
    with streaming(database) as source:
        _insert(database, 1, 1)
        position = read_all(source, database)[-1].position
        database.execute("DROP PUBLICATION p")
        _insert(database, 2, 2)
        # From version 18 on pgoutput itself goes on without it, with a warning.
        told = 'publication "p" does not exist' if database.version < 18 else 'skipped loading publication "p"'
        with pytest.raises(SourceRefused, match=told):
            read_up_to(source, 1 << 63)
    assert 'publication "p" does not exist' in _refusal(database, SourceRefused, position)


@pytest.mark.behaviour("R5")
@pytest.mark.parametrize("by_libpq", [False, True], ids=["socket", "libpq"])
def test_what_was_committed_while_a_publication_was_gone_is_a_gap_that_is_told(
    every_postgres: Database, by_libpq: bool
) -> None:
    # Where encryption may be had, libpq stands between the socket and the stream, and keeps warnings to itself.
    database = replace(every_postgres, dsn=f"{every_postgres.dsn} gssencmode=prefer") if by_libpq else every_postgres
    database.execute(_SCHEMA)
    with streaming(database) as source:
        _insert(database, 1, 1)
        position = read_all(source, database)[-1].position
    database.execute("DROP PUBLICATION p")
    _insert(database, 2, 2)
    database.execute("CREATE PUBLICATION p FOR TABLE t")
    with streaming(database, position) as source, pytest.raises(PositionRefused) as refused:
        read_up_to(source, 1 << 63)
    assert 'publication "p"' in str(refused.value)
    assert "dropped and created again" in str(refused.value)
    assert "psql-streamer snapshot start --source db1 --accept-gap" in str(refused.value)
    found = re.search('set walPositionOverride = "(.+?)"', str(refused.value))
    assert found is not None
    _insert(database, 3, 3)
    with streaming(database, position, walPositionOverride=found[1]) as source:
        assert [row[0] for row in rows(read_all(source, database))] == [b"3"]


def test_a_server_without_logical_wal_is_refused_with_the_command_that_mends_it(own_postgres: EmbeddedPostgres) -> None:
    own_postgres.settings["wal_level"] = "replica"
    own_postgres.restart()
    database = Database("postgres", own_postgres.build_dsn(), own_postgres.version)
    database.execute("CREATE PUBLICATION p FOR ALL TABLES")
    said = _refusal(database, SourceRefused)
    assert 'wal_level is "replica"' in said
    assert "ALTER SYSTEM SET wal_level = 'logical'" in said


# What has no influence.

_SETTINGS = {
    "datestyle": "'SQL, DMY'",
    "intervalstyle": "sql_standard",
    "timezone": "'Asia/Kathmandu'",
    "bytea_output": "escape",
    "extra_float_digits": "-10",
    "search_path": "apart",
    "quote_all_identifiers": "on",
    "client_encoding": "LATIN1",
}
_VALUES = """
INSERT INTO "values" VALUES (1, '2024-02-29', '2024-02-29 13:14:15.5', '2024-02-29 13:14:15.5+00', '13:14:15+02',
    '1 year 2 months -3 days 04:05:06.7', '\\x00ff', 0.1::float4 + 0.2::float4, 0.1::float8 + 0.2::float8, 'łéß',
    'apart.thing'::regclass, 'apart.mood'::regtype, 'happy', ARRAY[date '2024-02-29'])
"""


@pytest.mark.behaviour("T5")
def test_settings_of_the_database_and_the_role_have_no_influence_on_values(every_postgres: Database) -> None:
    database = every_postgres
    database.execute("""
        CREATE SCHEMA apart; CREATE TABLE apart.thing (); CREATE TYPE apart.mood AS ENUM ('happy');
        CREATE TABLE "values" (id int PRIMARY KEY, d date, ts timestamp, tz timestamptz, tt timetz, i interval, b bytea,
            f4 float4, f8 float8, s text, c regclass, ty regtype, m apart.mood, a date[]);
        CREATE PUBLICATION p FOR TABLE "values"
    """)
    with streaming(database) as source:
        database.execute(_VALUES)
        [plain] = rows(read_all(source, database))
    for name, value in _SETTINGS.items():
        database.execute(f'ALTER DATABASE "{database.name}" SET {name} = {value}')
    with streaming(database) as source:
        [again] = rows(read_all(source, database))
    assert again == plain
    assert plain == (
        *(b"1", b"2024-02-29", b"2024-02-29 13:14:15.5", b"2024-02-29 13:14:15.5+00", b"13:14:15+02"),
        *(b"P1Y2M-3DT4H5M6.7S", b"\\x00ff", b"0.3", b"0.30000000000000004", "łéß".encode()),
        *(b"apart.thing", b"apart.mood", b"happy", b"{2024-02-29}"),
    )


# Several at once.


def test_several_sources_in_one_process_each_have_their_own_slot_and_place(shop: Database) -> None:
    with ExitStack() as stack:
        sources = [stack.enter_context(streaming(shop, replicationSlot=f"s{i}_{shop.name}")) for i in range(4)]
        _insert(shop, 1, 5)
        positions = []
        for source in sources:
            batches = read_all(source, shop)
            assert rows(batches) == _ids(1, 5)
            positions.append(batches[-1].position)
        sources[2].confirm(positions[2])
        wait_for(
            lambda: confirmed_flush_lsn(shop, f"s2_{shop.name}") == WalPosition.from_position(positions[2]).lsn,
            "the confirmation",
        )
        assert all(
            confirmed_flush_lsn(shop, f"s{i}_{shop.name}") < WalPosition.from_position(positions[i]).lsn
            for i in (0, 1, 3)
        )
        sources[1].stop()
        _insert(shop, 6, 6)
        assert rows(read_all(sources[3], shop)) == _ids(6, 6)


def test_a_source_that_is_interrupted_does_not_blame_its_reader_process(shop: Database) -> None:
    with streaming(shop) as source:
        source.interrupt()
        with pytest.raises(SourceUnavailable, match="interrupted while it read"):
            read_until(source, lambda _: False)


def test_a_start_that_is_given_up_says_what_it_waited_for(shop: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    source = source_of(shop)
    source.read_stream_identity()
    spawn = source._spawn

    def spawn_and_give_up(*arguments: Any) -> ReaderSession:
        reader = spawn(*arguments)
        reader.interrupt()
        return reader

    monkeypatch.setattr(source, "_spawn", spawn_and_give_up)
    with pytest.raises(SourceUnavailable, match=r"the server did not start replication in time: .*startTimeout"):
        source.start(None)
    source.stop()


def test_a_reader_process_that_does_not_end_is_ended_within_the_time_of_a_stop(shop: Database) -> None:
    with streaming(shop) as source:
        assert source._reader is not None
        process = source._reader.process
        freeze(process.pid)
        began = time.monotonic()
        source.stop()
        assert time.monotonic() - began < pipeline._RELEASE_SECONDS
        assert process.poll() == -signal.SIGKILL


def test_a_reader_process_that_is_killed_is_named(shop: Database) -> None:
    with streaming(shop) as source:
        assert source._reader is not None
        source._reader.process.kill()
        with pytest.raises(SourceUnavailable, match="the reader process ended unexpectedly"):
            read_until(source, lambda _: False)


def test_a_reader_that_the_machine_cannot_start_now_is_tried_again_and_named(
    shop: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lack_processes(*_: Any, **__: Any) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    with streaming(shop) as source:
        with monkeypatch.context() as lacking:
            lacking.setattr("subprocess._fork_exec", lack_processes)
            with pytest.raises(SourceUnavailable, match="no more threads and processes can be started: raise"):
                source.start(None)
            assert not source.status().ok
        source.start(None)
        assert source.status().ok
