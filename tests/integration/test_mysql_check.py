"""What `check` finds on a server, and how accounts and TLS are dealt with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest

from psql_streamer.embedded.binlog_server import BinlogServer
from psql_streamer.embedded.mariadb import EmbeddedMariadb
from psql_streamer.embedded.mysql import EmbeddedMysql
from psql_streamer.errors import SourceRefused, SourceUnavailable
from tests.certificates import Certificate
from tests.mariadb import Schema, fresh_schema
from tests.mysql_accounts import documented_account, rights_on
from tests.mysql_source import read_all, seen, source_of, streaming


def findings(schema: Schema, **options: object) -> list[str]:
    """What `check` says of a source of this schema."""
    return [str(finding) for finding in source_of(schema, **options).check()]


def dsn_of(schema: Schema, user: str, password: str = "", query: str = "") -> str:
    """The dsn of an account."""
    return f"mysql://{user}:{password}@{schema.host}:{schema.port}/{query}"


def test_a_server_that_is_ready_gives_nothing_to_say(every_schema: Schema) -> None:
    every_schema.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    assert findings(every_schema) == []


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("binlog_row_metadata", "MINIMAL", "error: binlog_row_metadata is MINIMAL: .* SET GLOBAL binlog_row_metadata"),
        ("binlog_format", "STATEMENT", "error: binlog_format is STATEMENT: .* SET GLOBAL binlog_format = 'ROW'"),
        ("binlog_row_image", "MINIMAL", "warning: binlog_row_image is MINIMAL: events lack"),
        ("binlog_expire_logs_seconds", "3600", "warning: the server removes its binary log after 1 hours"),
    ],
)
@pytest.mark.behaviour("B6")
def test_a_setting_that_is_wrong_is_named_with_its_remedy(
    own_server: BinlogServer, setting: str, value: str, told: str
) -> None:
    with fresh_schema(own_server.host, own_server.port, own_server.version, "s") as schema:
        before = schema.value(f"SELECT @@GLOBAL.{setting}")
        schema.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        schema.execute(
            f"SET GLOBAL {setting} = '{value}'" if not value.isdigit() else f"SET GLOBAL {setting} = {value}"
        )
        try:
            [found] = findings(schema)
        finally:
            schema.execute(f"SET GLOBAL {setting} = " + (f"'{before}'" if isinstance(before, str) else str(before)))
        assert re.search(told, found), found


@pytest.mark.behaviour("B5", "B6")
def test_parts_of_documents_are_refused_and_check_says_so_before(mysql: EmbeddedMysql) -> None:
    with fresh_schema(mysql.host, mysql.port, mysql.version, "partial_json") as schema:
        schema.execute(
            "CREATE TABLE t (id INT PRIMARY KEY, doc JSON)", "SET GLOBAL binlog_row_value_options = PARTIAL_JSON"
        )
        try:
            [found] = findings(schema)
            with streaming(schema) as source:
                schema.execute(
                    f'INSERT INTO t VALUES (1, \'{{"a": 1, "long": "{"x" * 500}"}}\')',
                    "UPDATE t SET doc = JSON_SET(doc, '$.a', 2)",
                )
                with pytest.raises(SourceRefused, match=r"a part of a JSON document.*binlog_row_value_options=''"):
                    read_all(source, schema)
        finally:
            schema.execute("SET GLOBAL binlog_row_value_options = ''")
    assert re.search(
        "error: binlog_row_value_options is PARTIAL_JSON: .* SET GLOBAL binlog_row_value_options = ''", found
    )


@pytest.fixture(scope="module")
def own_server() -> Iterator[BinlogServer]:
    """A server whose settings the tests of this module change. Its certificate is for 127.0.0.1."""
    server = EmbeddedMariadb()
    own, client = (Certificate(server.log_file.parent, name) for name in ("server", "client"))
    server.settings |= {"ssl_cert": str(own.certificate), "ssl_key": str(own.key), "ssl_ca": str(client.certificate)}
    with server:
        yield server


def tls_dsn(server: BinlogServer, host: str, user: str = "root", **parameters: str) -> str:
    """A dsn that checks the certificate of `own_server` and the name in it. parameters: further ones."""
    given = {"ssl-mode": "VERIFY_IDENTITY", "ssl-ca": server.settings["ssl_cert"], **parameters}
    return f"mysql://{user}@{host}:{server.port}/?{urlencode(given)}"


@contextmanager
def one_table(server: BinlogServer) -> Iterator[Schema]:
    with fresh_schema(server.host, server.port, server.version, "s") as schema:
        schema.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        yield schema


def test_a_certificate_of_another_name_is_refused_and_of_the_same_taken(own_server: BinlogServer) -> None:
    with one_table(own_server) as schema:
        with streaming(schema, dsn=tls_dsn(own_server, "127.0.0.1")) as source:
            schema.execute("INSERT INTO t VALUES (1)")
            assert len(seen(read_all(source, schema))) == 1
        other = source_of(schema, dsn=tls_dsn(own_server, "localhost"))
        with pytest.raises(SourceRefused, match=r"no TLS session with localhost:.*not valid for 'localhost'"):
            other.start(None)
        assert any("not valid for 'localhost'" in str(finding) for finding in other.check())


def test_an_account_that_needs_a_certificate_gets_in_with_it_and_not_without(own_server: BinlogServer) -> None:
    folder = own_server.log_file.parent
    shown = {"ssl-cert": str(folder / "client.crt"), "ssl-key": str(folder / "client.key")}
    with one_table(own_server) as schema:
        schema.execute(
            "CREATE USER shows@'%' REQUIRE X509", "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO shows@'%'"
        )
        with streaming(schema, dsn=tls_dsn(own_server, "127.0.0.1", "shows", **shown)) as source:
            schema.execute("INSERT INTO t VALUES (1)")
            assert len(seen(read_all(source, schema))) == 1
        with pytest.raises(SourceRefused, match="Access denied for user 'shows'"):
            source_of(schema, dsn=tls_dsn(own_server, "127.0.0.1", "shows")).start(None)


@pytest.mark.behaviour("B6")
@pytest.mark.parametrize(
    ("shown", "refusal"),
    [
        ("10.4.34-MariaDB", "MariaDB 10.4.34-MariaDB.*10.5.0 is the oldest that is supported"),
        ("8.0.13", "MySQL 8.0.13.*8.0.14 is the oldest that is supported"),
    ],
)
def test_a_server_that_is_too_old_is_refused(shown: str, refusal: str) -> None:
    """MariaDB says that it is whatever version it is told to be."""
    with (
        EmbeddedMariadb(settings={"version": shown}) as server,
        fresh_schema(server.host, server.port, (10, 4), "s") as schema,
    ):
        assert any(re.search(refusal, found) for found in findings(schema))
        with pytest.raises(SourceRefused, match=refusal):
            source_of(schema).start(None)


@pytest.mark.behaviour("B6")
def test_a_server_without_a_binary_log_is_refused() -> None:
    settings = {"skip_log_bin": "1", "log_slave_updates": "OFF"}
    server = EmbeddedMariadb(settings=settings)
    del server.settings["log_bin"]
    with server, fresh_schema(server.host, server.port, server.version, "s") as schema:
        assert any("the server writes no binary log: start it with log_bin" in found for found in findings(schema))
        with pytest.raises(SourceRefused, match="no binary log"):
            source_of(schema).start(None)


@pytest.mark.behaviour("B6")
def test_a_replica_that_does_not_log_what_it_gets_is_told() -> None:
    with (
        EmbeddedMariadb(settings={"server_id": "2", "log_slave_updates": "OFF"}) as server,
        fresh_schema(server.host, server.port, server.version, "s") as schema,
    ):
        schema.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        assert findings(schema) == [], "whose changes are all its own"
        schema.execute("CHANGE MASTER TO master_host = '127.0.0.1', master_port = 1, master_user = 'nobody'")
        [found] = findings(schema)
    assert found.startswith("warning: the server is a replica and log_slave_updates is OFF: "), found


@pytest.mark.behaviour("B5", "B6")
def test_a_table_that_the_server_writes_as_statements_alone_is_named(schema: Schema) -> None:
    schema.execute(
        "CREATE TABLE other (id INT PRIMARY KEY)",
        "CREATE TABLE dated (id INT PRIMARY KEY) WITH SYSTEM VERSIONING",
        "CREATE TABLE precise (id INT PRIMARY KEY, a BIGINT UNSIGNED GENERATED ALWAYS AS ROW START, "
        "b BIGINT UNSIGNED GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (a, b)) WITH SYSTEM VERSIONING",
    )
    options = {"tables": [f"{schema.name}.other"]}
    [found] = findings(schema, **options)
    assert found.startswith(f"error: {schema.name}.precise keeps its history by transactions (ROW START is BIGINT)")
    with streaming(schema, **options) as source:
        schema.execute("INSERT INTO precise (id) VALUES (1)")
        with pytest.raises(SourceRefused, match=r"as a statement, not as rows, .* which check names"):
            read_all(source, schema)


@pytest.mark.behaviour("B6")
def test_tables_without_a_key_are_named(every_schema: Schema) -> None:
    every_schema.execute("CREATE TABLE keyless (id INT)")
    [found] = findings(every_schema)
    assert f"warning: {every_schema.name}.keyless has no primary key: its events have no key" in found


@pytest.mark.behaviour("B6")
def test_a_table_without_a_key_is_named_beside_one_of_that_name_in_another_case(every_schema: Schema) -> None:
    every_schema.execute("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE T (id INT)")
    [found] = findings(every_schema)
    assert f"warning: {every_schema.name}.T has no primary key: its events have no key" in found


@pytest.mark.behaviour("B6")
def test_an_account_without_privileges_is_told_what_to_grant(every_schema: Schema) -> None:
    schema = every_schema
    schema.execute("DROP USER IF EXISTS poor@'%'", "CREATE USER poor@'%' IDENTIFIED BY 'secret-of-poor'")
    found = findings(schema, dsn=dsn_of(schema, "poor", "secret-of-poor"))
    assert any(f"GRANT {rights_on(schema)} ON *.* TO 'poor'@'%'" in one for one in found), found
    found = findings(schema, dsn=dsn_of(schema, "poor", "secret-of-poor"), serverId=4711)
    assert any(f"GRANT {rights_on(schema, own_id=True)} ON *.* TO 'poor'@'%'" in one for one in found), found
    assert "secret-of-poor" not in "".join(found)


@pytest.mark.behaviour("B6")
def test_an_account_with_the_rights_of_the_page_is_enough(every_schema: Schema) -> None:
    schema = every_schema
    schema.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with documented_account(schema) as dsn, streaming(schema, dsn=dsn) as source:
        assert source.list_published() is None
        schema.execute("INSERT INTO t VALUES (1)")
        assert [change.after for change in seen(read_all(source, schema))] == [{"id": "1"}]


@pytest.mark.behaviour("B6")
def test_nothing_is_said_of_an_account_that_also_sees_the_tables(every_schema: Schema) -> None:
    every_schema.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with documented_account(every_schema, on_tables="SELECT") as dsn:
        assert findings(every_schema, dsn=dsn, snapshot="initial") == []


@pytest.mark.behaviour("B6", "B7")
def test_what_an_account_may_not_see_is_told_with_the_right_that_it_lacks(schema: Schema) -> None:
    schema.execute(
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "CREATE USER blind@'%' IDENTIFIED BY 'x'",
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO blind@'%'",
        f"GRANT SELECT ON {schema.name}.* TO blind@'%'",
    )
    try:
        found = findings(schema, dsn=dsn_of(schema, "blind", "x"), serverId=4711)
    finally:
        schema.execute("DROP USER blind@'%'")
    no_upstream, no_replicas = found
    assert "lacks SLAVE MONITOR, and so may not see whether the server is a replica" in no_upstream
    assert "GRANT SLAVE MONITOR ON *.* TO 'blind'@'%'" in no_upstream
    assert "lacks REPLICATION MASTER ADMIN, and so may not see whether another client has serverId 4711" in no_replicas
    assert "GRANT REPLICATION MASTER ADMIN ON *.* TO 'blind'@'%', or leave serverId out" in no_replicas


def test_a_wrong_password_is_refused_and_not_shown(every_schema: Schema) -> None:
    source = source_of(every_schema, dsn=dsn_of(every_schema, "root", "wrong-password-9"))
    with pytest.raises(SourceRefused, match="check user and password in the dsn") as failure:
        source.start(None)
    assert "wrong-password-9" not in str(failure.value)
    assert "wrong-password-9" not in repr(source.options)


def test_a_server_that_is_not_there_is_waited_for(schema: Schema) -> None:
    with pytest.raises(SourceUnavailable, match=r"127\.0\.0\.1:1: .*check host and port in the dsn"):
        source_of(schema, dsn="mysql://root@127.0.0.1:1/").start(None)


@pytest.mark.parametrize("mode", ["DISABLED", "REQUIRED", "VERIFY_CA"])
def test_caching_sha2_password_works_with_tls_and_without(mysql: EmbeddedMysql, mode: str) -> None:
    ca = mysql.data_dir / "ca.pem"
    with fresh_schema(mysql.host, mysql.port, mysql.version, f"tls_{mode.lower()}") as schema:
        schema.execute(
            "CREATE TABLE t (id INT PRIMARY KEY)",
            f"CREATE USER {schema.name}@'%' IDENTIFIED WITH caching_sha2_password BY 'secret'",
            f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {schema.name}@'%'",
        )
        query = f"?ssl-mode={mode}" + (f"&ssl-ca={ca}" if mode == "VERIFY_CA" else "")
        with streaming(schema, dsn=dsn_of(schema, schema.name, "secret", query)) as source:
            schema.execute("INSERT INTO t VALUES (1)")
            assert len(seen(read_all(source, schema))) == 1
            with source._connector.open_connection() as connection, connection.cursor() as cursor:
                cursor.execute("SHOW STATUS LIKE 'Ssl_cipher'")
                assert bool(cursor.fetchone()[1]) == (mode != "DISABLED")


def test_a_certificate_of_another_authority_is_refused(mysql: EmbeddedMysql, tmp_path: Path) -> None:
    with fresh_schema(mysql.host, mysql.port, mysql.version, "tls_other") as schema:
        other = mysql.data_dir / "client-cert.pem"
        with pytest.raises(SourceRefused, match=r"no TLS session with .*check ssl-mode"):
            source_of(schema, dsn=dsn_of(schema, "root", "", f"?ssl-ca={other}")).start(None)
        gone = tmp_path / "gone.pem"
        gone.touch()
        source = source_of(schema, dsn=dsn_of(schema, "root", "", f"?ssl-ca={gone}"))
        gone.unlink()
        with pytest.raises(SourceRefused, match="no TLS session"):
            source.start(None)


def test_a_server_id_that_is_the_servers_own_is_refused(every_schema: Schema) -> None:
    number = every_schema.value("SELECT @@server_id")
    assert any(f"serverId {number} is the server's own" in found for found in findings(every_schema, serverId=number))


@pytest.mark.behaviour("B7")
def test_a_server_id_under_which_somebody_reads_is_told(every_schema: Schema) -> None:
    schema = every_schema
    schema.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with (
        documented_account(schema, own_id=True, on_tables="SELECT") as dsn,
        streaming(schema, serverId=4242) as source,
    ):
        read_all(source, schema)
        (found,) = findings(schema, serverId=4242, dsn=dsn)
        assert findings(schema, serverId=4243, dsn=dsn) == []
    assert found.startswith("warning: a client with serverId 4242 is connected")


@pytest.mark.parametrize(
    ("dsn", "told"),
    [
        ("postgresql://u:hunter2@h/", "is not the URL of a server"),
        ("mysql://u:hunter2@h/shop", "names a database"),
        ("mysql://u:hunter2@h/?ssl-mod=x", "has the unknown parameter ssl-mod"),
        ("mysql://u:hunter2@h/?ssl-mode=x", "has an unknown ssl-mode"),
        ("mysql://h/", "is not the URL of a server"),
    ],
)
def test_a_dsn_that_is_none_is_refused_without_being_shown(schema: Schema, dsn: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as failure:
        source_of(schema, dsn=dsn)
    assert "hunter2" not in str(failure.value)


def test_what_keeps_tables_from_being_read_is_told_before_the_start(schema: Schema) -> None:
    account = f"check{schema.name[-8:]}"
    schema.execute(
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "CREATE TABLE hidden (id INT PRIMARY KEY)",
        "CREATE TABLE keyless (v INT)",
        "CREATE TABLE isam (id INT PRIMARY KEY) ENGINE = MyISAM",
        f"CREATE USER {account}@'%' IDENTIFIED BY 'x'",
        f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {account}@'%'",
        f"GRANT SELECT ON {schema.name}.t TO {account}@'%'",
        f"GRANT INSERT ON {schema.name}.hidden TO {account}@'%'",
        f"GRANT SELECT ON {schema.name}.keyless TO {account}@'%'",
        f"GRANT SELECT ON {schema.name}.isam TO {account}@'%'",
    )
    snapshot = {"where": {"t": "nothing > 1", "typo": "true"}}
    try:
        found = findings(schema, dsn=dsn_of(schema, account, "x"), snapshot=snapshot)
        of_all = "\n".join(findings(schema, dsn=dsn_of(schema, account, "x"), snapshot="never"))
    finally:
        schema.execute(f"DROP USER {account}@'%'")
    told = "\n".join(found)
    assert 'warning: snapshot.where has "typo", which is no table' in told
    assert re.search(rf"GRANT SELECT ON `{schema.name}`.`hidden` TO '{account}'@'%'", told)
    assert f"{schema.name}.keyless has no primary key: nothing tells its rows" in told
    assert "isam is of the engine MyISAM" in told
    assert re.search(r"error: the server refuses the condition of \S+\.t \(error 1054\)", told)
    assert "snapshot" not in of_all
