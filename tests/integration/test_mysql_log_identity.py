"""A binary log that is not the one that a position was read from: reset, or of a restored server."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from psql_streamer.embedded.mariadb import EmbeddedMariadb
from psql_streamer.embedded.mysql import EmbeddedMysql
from psql_streamer.errors import PositionRefused, SourceError
from psql_streamer.model import Batch, Position
from sources.mysql.positions import make_override_position
from tests.mariadb import Schema, fresh_schema
from tests.mysql_source import purge_all_but_the_last, read_all, read_until, seen, source_of, streaming

OTHER_LOG = r"not the one that the stored position .* was read from: its file \S+\.000001 (was begun at|has \d+ bytes)"


def take_position(batches: list[Batch]) -> Position:
    """Of the last batch, as it comes back from where it is stored."""
    position = batches[-1].position
    return Position(json.loads(json.dumps(dict(position.data))), position.shown)


def await_next_second() -> None:
    """Servers note the moment at which a file is begun in seconds."""
    time.sleep(1.05)


def insert(schema: Schema, first: int, count: int) -> None:
    """So many transactions of a row each."""
    schema.execute(*(f"INSERT INTO t VALUES ({number})" for number in range(first, first + count)))


def ids(batches: list[Batch]) -> list[int]:
    return [int(change.after["id"]) for change in seen(batches) if change.after]


def refuse_a_log_that_was_reset(schema: Schema, reset: str) -> None:
    """While the source runs, and at its next start."""
    schema.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with streaming(schema) as source:
        insert(schema, 0, 5)
        position = take_position(read_all(source, schema))
        await_next_second()
        schema.execute(reset)
        insert(schema, 100, 40)
        with pytest.raises(SourceError):
            read_until(source, lambda batches: bool(ids(batches)), 10)
        with pytest.raises(PositionRefused, match=OTHER_LOG):
            source.start(position)
    source = source_of(schema)
    with pytest.raises(PositionRefused, match=OTHER_LOG) as refused:
        source.start(position)
    assert "--accept-gap" in refused.value.remedy
    assert [str(finding) for finding in source.check_position(position)] != []
    override = make_override_position(position.data["executed"])
    assert override is not None
    with streaming(schema, source.move_position(position, override)) as source:
        assert ids(read_all(source, schema))[-1] == 139, "an operator's word counts"


@pytest.mark.behaviour("B4", "B7")
def test_a_log_of_mariadb_that_was_reset_is_refused_though_it_has_overtaken_the_position(
    own_mariadb: EmbeddedMariadb,
) -> None:
    server = own_mariadb
    with fresh_schema(server.host, server.port, server.version, "s") as schema:
        refuse_a_log_that_was_reset(schema, "RESET MASTER")


@pytest.mark.soak
@pytest.mark.behaviour("B4", "B7")
def test_a_log_of_mysql_that_was_reset_is_refused_though_it_has_overtaken_the_position() -> None:
    with (
        EmbeddedMysql() as server,
        fresh_schema(server.host, server.port, server.version, "s") as schema,
    ):
        refuse_a_log_that_was_reset(schema, "RESET BINARY LOGS AND GTIDS")


@pytest.mark.soak
@pytest.mark.behaviour("B4", "B7")
def test_a_log_of_mysql_without_gtids_that_was_reset_is_refused() -> None:
    settings = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}
    with (
        EmbeddedMysql(settings=settings) as server,
        fresh_schema(server.host, server.port, server.version, "s") as schema,
    ):
        schema.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        with streaming(schema) as source:
            insert(schema, 0, 5)
            position = take_position(read_all(source, schema))
        await_next_second()
        schema.execute("RESET BINARY LOGS AND GTIDS")
        insert(schema, 100, 40)
        with pytest.raises(PositionRefused, match=OTHER_LOG):
            source_of(schema).start(position)


def go_on_with_what_is_there(server: Any, schema: Schema) -> None:
    """Behind rotations, a restart, and the removal of the file in which the position lies."""
    schema.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with streaming(schema) as source:
        insert(schema, 0, 2)
        position = take_position(read_all(source, schema))
    assert position.data["begun"]
    insert(schema, 2, 1)
    schema.execute("FLUSH BINARY LOGS")
    insert(schema, 3, 1)
    server.restart()
    insert(schema, 4, 1)
    earlier = Position({key: value for key, value in position.data.items() if key != "begun"}, position.shown)
    for one in (position, earlier):
        with streaming(schema, one) as source:
            batches = read_all(source, schema)
            assert ids(batches) == [2, 3, 4]
    position = take_position(batches)
    schema.execute("FLUSH BINARY LOGS")
    last = schema.query("SHOW BINARY LOGS")[-1][0]
    schema.execute(f"PURGE BINARY LOGS TO '{last}'")
    insert(schema, 5, 1)
    with streaming(schema, position) as source:
        assert ids(read_all(source, schema)) == [5]


@pytest.mark.behaviour("B4")
def test_rotations_restarts_and_removed_files_of_mariadb_are_no_other_log(own_mariadb: EmbeddedMariadb) -> None:
    server = own_mariadb
    with fresh_schema(server.host, server.port, server.version, "s") as schema:
        go_on_with_what_is_there(server, schema)


@pytest.mark.soak
@pytest.mark.behaviour("B4")
def test_rotations_restarts_and_removed_files_of_mysql_are_no_other_log() -> None:
    with EmbeddedMysql() as server, fresh_schema(server.host, server.port, server.version, "s") as schema:
        go_on_with_what_is_there(server, schema)


@pytest.mark.behaviour("B4", "B7")
def test_a_domain_that_was_deleted_stops_nothing_while_the_file_of_the_position_is_there(
    own_mariadb: EmbeddedMariadb,
) -> None:
    server = own_mariadb
    with fresh_schema(server.host, server.port, server.version, "s") as schema:
        schema.execute("CREATE TABLE t (id INT PRIMARY KEY)", "SET gtid_domain_id = 7", "INSERT INTO t VALUES (0)")
        schema.execute("FLUSH BINARY LOGS")
        with streaming(schema) as source:
            insert(schema, 1, 1)
            position = take_position(read_all(source, schema))
        assert ",7-1-1" in position.data["executed"]
        purge_all_but_the_last(schema)
        schema.execute("FLUSH BINARY LOGS DELETE_DOMAIN_ID = (7)")
        insert(schema, 2, 1)
        with streaming(schema, position) as source:
            batches = read_all(source, schema)
        assert ids(batches) == [2]
        assert ",7-" not in batches[-1].position.data["executed"]
        purge_all_but_the_last(schema)
        with pytest.raises(PositionRefused, match=r"does not list domain 7 .* DELETE_DOMAIN_ID"):
            source_of(schema).start(position)
