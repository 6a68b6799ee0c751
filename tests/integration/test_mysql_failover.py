"""A failover between two servers: the GTIDs of one are those of the other."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from psql_streamer.embedded.mariadb import EmbeddedMariadb
from psql_streamer.embedded.mysql import EmbeddedMysql
from psql_streamer.errors import PositionRefused, SourceRefused, SourceUnavailable
from psql_streamer.events.routing import Router
from psql_streamer.model import Batch, Position
from tests.encoding import encoder_of
from tests.mariadb import Schema, fresh_schema
from tests.mysql_accounts import documented_account
from tests.mysql_source import identities, read_all, read_until, seen, source_of, streaming
from tests.source_at_work import wait_for

TABLE = "CREATE TABLE t (id INT PRIMARY KEY)"


def position_ahead(schema: Schema) -> Position:
    """One that a server has which has executed a hundred transactions more."""
    with streaming(schema) as source:
        found = source.find_dropped([])
    assert found is not None
    data = found[0].data
    domain, server, number = data["executed"].split("-")
    return Position({**data, "executed": f"{domain}-{server}-{int(number) + 100}"}, "a hundred ahead")


@pytest.mark.behaviour("B4", "B7")
def test_a_replica_of_mariadb_that_has_not_got_so_far_is_waited_for_with_the_rights_of_the_page(
    own_mariadb: EmbeddedMariadb,
) -> None:
    server = own_mariadb
    with fresh_schema(server.host, server.port, server.version, "failing_over") as schema:
        schema.execute(TABLE)
        ahead = position_ahead(schema)
        with documented_account(schema) as dsn:
            source = source_of(schema, dsn=dsn)
            with pytest.raises(PositionRefused, match="another server, or a failover has lost them"):
                source.start(ahead)
            schema.execute(f"CHANGE MASTER TO MASTER_HOST = '{server.host}', MASTER_PORT = 1, MASTER_USER = 'x'")
            with pytest.raises(SourceUnavailable, match="it is a replica that has not got so far"):
                source.start(ahead)
            schema.execute("RESET SLAVE ALL")


@pytest.mark.behaviour("B4", "B7")
def test_what_may_be_a_replica_is_waited_for_with_the_reason(own_mariadb: EmbeddedMariadb) -> None:
    server = own_mariadb
    with fresh_schema(server.host, server.port, server.version, "failing_over") as schema:
        schema.execute(
            TABLE, "CREATE USER blind@'%'", "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO blind@'%'"
        )
        source = source_of(schema, dsn=f"mysql://blind@{server.host}:{server.port}/")
        told = r"100 transactions .* may not see whether it is a replica .* GRANT SLAVE MONITOR ON .* TO 'blind'@'%'"
        with pytest.raises(SourceUnavailable, match=told):
            source.start(position_ahead(schema))
        assert "GRANT SLAVE MONITOR" in source.status().reason
        [finding] = source.check_position(position_ahead(schema))
        assert "GRANT SLAVE MONITOR" in finding.remedy


@pytest.mark.behaviour("B4")
def test_a_server_whose_gtids_have_gone_back_is_read_from_a_place_on(own_mariadb: EmbeddedMariadb) -> None:
    server = own_mariadb
    with fresh_schema(server.host, server.port, server.version, "failing_over") as schema:
        schema.execute("SET GLOBAL gtid_strict_mode = OFF", TABLE)
        schema.execute("SET gtid_seq_no = 900", "INSERT INTO t VALUES (1)")
        schema.execute("SET gtid_seq_no = 800", "INSERT INTO t VALUES (2)")
        with streaming(schema) as source, pytest.raises(SourceRefused, match="set gtid_strict_mode = ON on the server"):
            read_until(source, lambda batches: any(map(len, batches)))
        file, offset, *_ = schema.query("SHOW MASTER STATUS")[0]
        with streaming(schema, positionOverride=f"{file}:{offset}") as source:
            schema.execute("INSERT INTO t VALUES (3)")
            batches = read_all(source, schema)
        with streaming(schema, batches[-1].position) as source:
            schema.execute("INSERT INTO t VALUES (4)")
            batches += read_all(source, schema)
        assert [(change.after or {})["id"] for change in seen(batches)] == ["3", "4"]


@pytest.fixture
def replica(mysql: EmbeddedMysql) -> Iterator[EmbeddedMysql]:
    """Of `mysql`, at work."""
    with EmbeddedMysql(settings={"server_id": "2", "log_replica_updates": "ON"}) as server:
        Schema("mysql", server.host, server.port, server.version).execute(
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{mysql.host}', SOURCE_PORT = {mysql.port}, "
            "SOURCE_USER = 'root', SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1",
            "START REPLICA",
        )
        yield server


def uuids(batches: list[Batch]) -> list[str]:
    """Of the events, in their order."""
    encoder = encoder_of("event", Router({}, "", "t"), {})
    values = [value for batch in batches if len(batch) for value in encoder.encode(batch).values.to_pylist()]
    return [json.loads(value)["UUID"] for value in values]


@pytest.mark.soak
@pytest.mark.behaviour("B4")
def test_a_failover_to_a_replica_of_mysql_goes_on_without_a_gap(mysql: EmbeddedMysql, replica: EmbeddedMysql) -> None:
    with fresh_schema(mysql.host, mysql.port, mysql.version, "failing_over") as schema:
        there = Schema(schema.name, replica.host, replica.port, replica.version)
        schema.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        with streaming(schema, batchSize=2) as source:
            schema.transaction(*(f"INSERT INTO t VALUES ({number})" for number in range(5)))
            schema.execute("INSERT INTO t VALUES (5)")
            before = read_all(source, schema)
        schema.execute("INSERT INTO t VALUES (6)")
        end = schema.value("SELECT @@GLOBAL.gtid_executed")
        wait_for(lambda: bool(there.value(f"SELECT GTID_SUBSET('{end}', @@GLOBAL.gtid_executed)")), "the replica")
        there.execute("STOP REPLICA")
        schema.execute("INSERT INTO t VALUES (7)")
        with streaming(schema, before[-1].position) as source:
            at_primary = read_all(source, schema)
        with pytest.raises(SourceUnavailable, match="it is a replica that has not got so far"):
            source_of(there).start(at_primary[-1].position)
        there.execute("RESET REPLICA ALL", "INSERT INTO t VALUES (8)")
        with streaming(there, before[-1].position) as source:
            after = read_all(source, there)
        assert [(change.after or {})["id"] for change in seen(after)] == ["6", "8"]
        assert uuids(after)[0] == uuids(at_primary)[0], "a change has one UUID on every server"
        inside = next(batch for batch in before if batch.position.data["open"])
        with streaming(there, inside.position) as source:
            again = read_all(source, there)
        assert identities(before)[len(inside) :] + identities(after) == identities(again), "each with its identity"
