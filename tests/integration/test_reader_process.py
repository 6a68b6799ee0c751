"""The process in which the sources of one service read their streams."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing

import psutil
import pytest
from psycopg2.extensions import make_dsn

from psql_streamer.embedded.ports import LOOPBACK
from psql_streamer.errors import SourceUnavailable
from sources.postgres import reader_process, reader_session
from sources.postgres.reader import Settings
from sources.postgres.reader_session import ReaderSession
from sources.postgres.source import PostgresSource
from tests.database import Database, fresh_database
from tests.frozen_process import freeze
from tests.open_files import more_open_files_than_select_takes
from tests.source_at_work import read_all, read_until, rows, start_again, streaming, wait_for


@pytest.fixture
def shops(postgres: str) -> Iterator[list[Database]]:
    """Two databases, each with a table."""
    with ExitStack() as stack:
        found = [stack.enter_context(fresh_database(postgres, f"shop_{uuid.uuid4().hex[:12]}")) for _ in range(2)]
        for one in found:
            one.execute("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION p FOR TABLE t")
        yield found


def _readers() -> list[psutil.Process]:
    return [one for one in psutil.Process().children() if "sources.postgres.reader_program" in one.cmdline()]


def _read_row(source: PostgresSource, database: Database, number: int) -> None:
    """One that is written now."""
    database.execute("INSERT INTO t VALUES (%s)", number)
    assert rows(read_all(source, database))[-1] == (b"%d" % number, None)


def test_sources_read_in_one_process_which_ends_with_the_last(shops: list[Database]) -> None:
    with streaming(shops[0]) as one:
        with streaming(shops[1]) as other:
            [process] = _readers()
            for number in range(3):
                _read_row(one, shops[0], number)
                _read_row(other, shops[1], number)
        assert process.is_running()
        _read_row(one, shops[0], 3)
        assert _readers() == [process]
    assert not process.is_running()


def test_a_source_that_is_started_again_disturbs_no_other(shops: list[Database]) -> None:
    with streaming(shops[0]) as one, streaming(shops[1]) as other:
        [process] = _readers()
        batches = read_all(one, shops[0])
        for number in range(5):
            _read_row(other, shops[1], number)
            start_again(one, batches[-1].position if batches else None)
        assert other.stats()["reconnects"] == 0
        assert _readers() == [process]


def test_all_sources_go_on_when_their_process_is_killed(shops: list[Database]) -> None:
    with streaming(shops[0]) as one, streaming(shops[1]) as other:
        _read_row(one, shops[0], 1)
        _read_row(other, shops[1], 1)
        [process] = _readers()
        process.kill()
        for source, database in ((one, shops[0]), (other, shops[1])):
            with pytest.raises(SourceUnavailable, match="the reader process ended unexpectedly"):
                read_until(source, lambda _: False)
            start_again(source, None)
            _read_row(source, database, 2)
        [another] = _readers()
        assert another != process


def test_sessions_leave_nothing_open_in_either_process(shops: list[Database]) -> None:
    with streaming(shops[0]) as one, streaming(shops[1]) as other:
        [process] = _readers()
        start_again(other, None)
        before = _count_open(process)
        for number in range(5):
            start_again(other, None)
            _read_row(one, shops[0], number)
        wait_for(
            # Of those of the last start some may be opened yet. Each session that is left behind has one more.
            lambda: all(now < then + 5 for now, then in zip(_count_open(process), before, strict=True)),
            "sessions that are over to have no descriptors and no threads",
        )


def _count_open(process: psutil.Process) -> tuple[int, ...]:
    return process.num_fds(), process.num_threads(), psutil.Process().num_fds()


def test_a_frozen_process_is_killed_when_another_source_begins(
    shops: list[Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    with streaming(shops[0]) as one:
        [process] = _readers()
        freeze(process.pid)
        with monkeypatch.context() as impatient:
            impatient.setattr(reader_session, "_TAKE_SECONDS", 0.5)
            with pytest.raises(SourceUnavailable, match=r"reader process sent nothing for 0\.5 s"), streaming(shops[1]):
                pass
        assert not process.is_running()
        with pytest.raises(SourceUnavailable, match="the reader process was killed, because it did not answer"):
            read_until(one, lambda _: False)
        with streaming(shops[1]) as other:
            start_again(one, None)
            _read_row(one, shops[0], 1)
            _read_row(other, shops[1], 1)


def test_a_source_that_leaves_a_frozen_process_tells_the_others_why_it_is_killed(shops: list[Database]) -> None:
    with streaming(shops[0]) as one, streaming(shops[1]) as other:
        [process] = _readers()
        freeze(process.pid)
        other.stop()
        assert not process.is_running()
        with pytest.raises(SourceUnavailable, match="the reader process was killed, because it did not answer"):
            read_until(one, lambda _: False)
        start_again(one, None)
        _read_row(one, shops[0], 1)


def _settings(dsn: str) -> Settings:
    return Settings(dsn, "s", ["p"], ("1", 1, "d"), 0, 0, 30.0, 10.0, 10_000, 1.0, 4 << 20, "a", "db2")


def test_a_source_that_waits_for_its_server_can_be_stopped_and_disturbs_no_other(shops: list[Database]) -> None:
    with streaming(shops[0]) as one, socket.create_server((LOOPBACK, 0)) as silent:
        [process] = _readers()
        waiting = ReaderSession(_settings(make_dsn(host=LOOPBACK, port=silent.getsockname()[1], dbname="d")))
        asked, _ = silent.accept()
        began = time.monotonic()
        waiting.close()
        assert time.monotonic() - began < 5
        _read_row(one, shops[0], 1)
        assert _readers() == [process]
        asked.close()  # the session may end now
        wait_for(lambda: process.num_threads() == 2, "the session that nobody waits for to end")
        _read_row(one, shops[0], 2)


def _status(setting: bytes, value: bytes) -> bytes:
    body = setting + b"\0" + value + b"\0"
    return b"S" + (4 + len(body)).to_bytes(4, "big") + body


_READY = b"".join(
    [
        b"R\0\0\0\x08\0\0\0\0",
        _status(b"server_version", b"18.0"),
        _status(b"client_encoding", b"UTF8"),
        _status(b"DateStyle", b"ISO, MDY"),
        b"Z\0\0\0\x05I",
    ]
)
"""AuthenticationOk, what psycopg2 needs of ParameterStatus, and ReadyForQuery."""


def test_a_session_whose_server_keeps_silent_behind_the_login_is_cut_off_when_its_source_leaves(
    shops: list[Database],
) -> None:
    with streaming(shops[0]) as one, socket.create_server((LOOPBACK, 0)) as silent:
        [process] = _readers()
        dsn = make_dsn(host=LOOPBACK, port=silent.getsockname()[1], dbname="d", sslmode="disable", user="u")
        waiting = ReaderSession(_settings(dsn))
        with closing(silent.accept()[0]) as asked:
            asked.recv(1000)
            asked.sendall(_READY)
            assert asked.recv(1) == b"Q"
            waiting.close()
            wait_for(lambda: process.num_threads() == 2, "the session that nobody waits for to end")
        _read_row(one, shops[0], 1)
        assert _readers() == [process]


def test_a_process_whose_sessions_wait_for_their_server_ends_with_its_parent() -> None:
    shared = reader_process.ReaderProcess()
    with socket.create_server((LOOPBACK, 0)) as silent, ExitStack() as stack:
        ours, theirs = socket.socketpair()
        life, life_there = os.pipe()
        with theirs:
            running = shared.begin_session(theirs.fileno(), life_there)
        os.close(life_there)
        stack.callback(os.close, life)
        ours.sendall(_settings(make_dsn(host=LOOPBACK, port=silent.getsockname()[1], dbname="d")).encode_line())
        stack.enter_context(closing(silent.accept()[0]))
        ours.close()  # as the kernel does for a parent that is killed
        running.control.close()
        assert running.popen.wait(30) == 0


def test_sources_that_begin_at_once_begin_in_one_process(shops: list[Database]) -> None:
    with ExitStack() as stack:
        streams: list[PostgresSource] = []

        def begin(database: Database) -> None:
            streams.append(stack.enter_context(streaming(database)))

        threads = [threading.Thread(target=begin, args=(database,)) for database in shops]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(streams) == 2
        assert len(_readers()) == 1


def test_a_process_that_may_open_no_more_files_refuses_a_session_and_goes_on_with_the_others(
    shops: list[Database],
) -> None:
    with streaming(shops[0]) as one:
        [process] = _readers()
        hard = process.rlimit(psutil.RLIMIT_NOFILE)[1]
        before = process.num_fds()
        for free in range(5):
            process.rlimit(psutil.RLIMIT_NOFILE, (before + free, hard))
            with (
                pytest.raises(SourceUnavailable, match=r"no more files can be opened.*: raise the limit: ulimit -n"),
                streaming(shops[1]),
            ):
                pass
            _read_row(one, shops[0], free)
            wait_for(lambda: process.num_fds() == before, "the descriptors of the refused session to be closed")
        process.rlimit(psutil.RLIMIT_NOFILE, (hard, hard))
        with streaming(shops[1]) as other:
            _read_row(other, shops[1], 1)
        assert _readers() == [process]
        assert one.stats()["reconnects"] == 0


def test_a_source_streams_beside_more_open_files_than_select_takes(shops: list[Database]) -> None:
    with more_open_files_than_select_takes(), streaming(shops[0]) as one:
        _read_row(one, shops[0], 1)
        start_again(one, None)
        _read_row(one, shops[0], 2)
