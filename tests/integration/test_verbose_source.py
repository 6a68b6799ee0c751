"""The option `verbose` of a source: the log names each change that is read, and shows no value."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.database import Database
from tests.source_at_work import source_of, wait_for
from tests.unit.test_source_pace import Gate, at_work


@pytest.mark.behaviour("O6")
@pytest.mark.parametrize("verbose", [True, False])
def test_a_verbose_source_logs_a_line_for_each_change_without_its_values(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture, verbose: bool
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE u (id int PRIMARY KEY)")
    database.execute("CREATE PUBLICATION p FOR ALL TABLES; INSERT INTO t VALUES (1, 'geheim')")
    sink = Gate("sink")
    sink.let_through.release(1000)
    source = source_of(database, verbose=verbose, snapshot="initial")
    with caplog.at_level(logging.INFO, "psql_streamer"), at_work(tmp_path, source, sink):
        wait_for(lambda: sum(sink.took) == 1, "the row that is there")
        database.execute(
            """
            INSERT INTO t VALUES (2, 'geheim'); INSERT INTO u VALUES (1); UPDATE t SET v = 'geheim 2' WHERE id = 2;
            DELETE FROM u; TRUNCATE u; SELECT pg_logical_emit_message(true, 'geheim-nicht', 'geheim')
            """
        )
        wait_for(lambda: sum(sink.took) == 7, "the changes")
    said = [message for message in caplog.messages if ": read " in message]
    assert [message.partition(", commit ")[0] for message in said] == [
        f"source.db1: read {what}"
        for what in (
            "read of public.t",
            "insert of public.t",
            "insert of public.u",
            "update of public.t",
            "delete of public.u",
            "truncate of public.u",
            'message of prefix "geheim-nicht"',
        )
        if verbose
    ]
    assert [message.partition(", change ")[2] for message in said[1:]] == [*"012345"][: len(said[1:])]
    assert "geheim'" not in caplog.text
    assert "geheim 2" not in caplog.text
