"""No output of any command shows a password, wherever it was written and whatever goes wrong."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg2
import pytest
from psycopg2.extensions import make_dsn

from psql_streamer.embedded.mariadb import EmbeddedMariadb
from psql_streamer.embedded.postgres import EmbeddedPostgres
from tests.service import Service

pytestmark = pytest.mark.behaviour("O6")

PASSWORDS = ("hunter2-is-secret", "zqx")
"""One that nothing else holds, and one that a text could hold by chance."""

LONG, SHORT = PASSWORDS

BROKEN = """
http = "127.0.0.1:0"
lmdb = "{folder}/positions"
startTimeout = "100ms"
[log]
level = "debug"
{sources}
[sink.kafka1]
type = "kafka"
sources = ["db0"]
hosts = ["127.0.0.1:{port}"]
topicPrefix = "t"
timeout = "100ms"
debug = true
handlers = ["{handler}"]
[sink.kafka1.kafka]
"security.protocol" = "SASL_PLAINTEXT"
"sasl.mechanism" = "PLAIN"
"sasl.username" = "streamer"
"sasl.password" = "{password}"
"ssl.key.password" = "{password}"
[spark.conf]
"spark.hadoop.fs.s3a.secret.key" = "{password}"
"""

SOURCE = """
[source.db{number}]
type = "postgres"
dsn = '{dsn}'
publication = "p"
snapshot = "never"
replicationSlot = "s{number}"
startRetryInterval = "50ms"
debug = true
"""

DSNS = (
    "host=127.0.0.1 port={port} user=streamer dbname=shop password={password}",
    "postgres://streamer:{password}@127.0.0.1:{port}/shop",
    "postgres://127.0.0.1:{port}/shop?user=streamer&password={password}&sslpassword={password}",
    "host=127.0.0.1 port={port} dbname=shop password=${{OF_A_TEST}}",
    "host=127.0.0.1 port={port} dbname=shop password=${{file:{folder}/password}}",
)
"""Where a password may stand in a DSN."""

TAKEN_FOR_A_PORT = "postgres://streamer:{password}/x@127.0.0.1:{port}/shop"


def configuration(folder: Path, port: int, password: str, dsns: tuple[str, ...], handler: str = "passthrough") -> Path:
    """A file whose servers are not there."""
    (folder / "password").write_text(password)
    values = {"folder": folder, "port": port, "password": password}
    sources = [SOURCE.format(number=number, dsn=dsn.format(**values)) for number, dsn in enumerate(dsns)]
    file = folder / "psql-streamer.toml"
    file.write_text(BROKEN.format(**values, sources="".join(sources), handler=handler))
    return file


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that nobody listens at."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def output(password: str, *arguments: str | Path, environ: Mapping[str, str] | None = None) -> str:
    """Everything that a command says; it must not end well, nor show the password."""
    ours = ("PG", "KAFKA_", "PSQL_STREAMER__")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run(
        [sys.executable, "-m", "psql_streamer", *arguments],
        env={**inherited, "OF_A_TEST": password, **(environ or {})},
        capture_output=True,
        text=True,
        timeout=60,
    )
    said = done.stdout + done.stderr
    assert done.returncode in (1, 2, 3), said
    assert said
    assert_hidden(password, said)
    return said


def assert_hidden(password: str, said: str) -> None:
    assert password not in said
    assert not re.search(r"\w\*\*\*|\*\*\*\w", said), "stars in a word tell where the password stands in it"


@pytest.mark.parametrize("password", PASSWORDS)
def test_a_check_shows_no_password(tmp_path: Path, closed_port: int, password: str) -> None:
    file = configuration(tmp_path, closed_port, password, DSNS, handler="spark")
    said = output(password, "check", "-vv", "--log-format", "json", "--json", "-config", file)
    assert all(f'"source.db{number}"' in said for number in range(len(DSNS)))


@pytest.mark.parametrize("command", ["run", "check", "validate"])
def test_a_password_that_libpq_takes_for_a_port_is_not_shown(tmp_path: Path, closed_port: int, command: str) -> None:
    file = configuration(tmp_path, closed_port, SHORT, (TAKEN_FOR_A_PORT,))
    assert "source.db0.dsn: " in output(SHORT, command, "-vv", "-config", file)


@pytest.mark.parametrize("dsn", [*DSNS[:3], *(pytest.param(dsn, marks=pytest.mark.soak) for dsn in DSNS[3:])])
def test_a_start_that_fails_shows_no_password(tmp_path: Path, closed_port: int, dsn: str) -> None:
    file = configuration(tmp_path, closed_port, SHORT, (dsn,))
    file.write_text(re.sub("(?s)\\[sink.*", '[sink.all]\ntype = "stub_discard"\nsources = ["db0"]\n', file.read_text()))
    assert "source.db0: " in output(SHORT, "run", "-vv", "-config", file)


@pytest.mark.parametrize("password", PASSWORDS)
def test_a_start_that_kafka_fails_shows_no_password(tmp_path: Path, closed_port: int, password: str) -> None:
    file = configuration(tmp_path, closed_port, password, DSNS[:1])
    assert "sink.kafka1: " in output(password, "run", "-vv", "-config", file)


@pytest.mark.parametrize("password", PASSWORDS)
def test_a_configuration_that_cannot_be_used_shows_no_password(tmp_path: Path, closed_port: int, password: str) -> None:
    file = configuration(tmp_path, closed_port, password, (f"host=127.0.0.1 {password}",))
    assert "is not a libpq connection string" in output(password, "validate", "--json", "-config", file)
    environ = {
        "PG_HOST": "127.0.0.1",
        "PG_PORT": str(closed_port),
        "PG_DATABASE": "shop",
        "PG_PASSWORD": password,
        "KAFKA_BROKERS": f"127.0.0.1:{closed_port}",
        "XDG_STATE_HOME": str(tmp_path),
        "PSQL_STREAMER__SINK__KAFKA__KAFKA": f"{{'sasl.password' = '{password}', 'no.such' = 1}}",
        "PSQL_STREAMER__SOURCE__POSTGRES__DSN": f"host=db {password}",
    }
    assert "no.such" in output(password, "run", environ=environ)


OTHERS = """
[source.db{number}]
type = "{kind}"
{address}
startRetryInterval = "50ms"
debug = true
"""

ADDRESSES = (
    ("mysql", 'dsn = "mysql://streamer:{password}@{server}/"'),
    ("sql", 'url = "mysql+pymysql://streamer:{password}@{server}/shop"\ntables = ["orders"]'),
    ("sql", 'url = "postgresql+psycopg2://streamer:{password}@127.0.0.1:{port}/shop"\ntables = ["orders"]'),
)
"""Where passwords of sources stand that are not `postgres`."""


@pytest.mark.parametrize("lets_in", [True, False], ids=["a server that refuses", "nobody there"])
def test_sources_of_other_kinds_show_no_password(
    mariadb: EmbeddedMariadb, tmp_path: Path, closed_port: int, lets_in: bool
) -> None:
    server = f"{mariadb.host}:{mariadb.port}" if lets_in else f"127.0.0.1:{closed_port}"
    sources = [
        OTHERS.format(number=number, kind=kind, address=address.format(password=SHORT, server=server, port=closed_port))
        for number, (kind, address) in enumerate(ADDRESSES)
    ]
    file = configuration(tmp_path, closed_port, SHORT, ())
    file.write_text(re.sub("(?s)\\[sink.*", _ALL.format(sources="".join(sources)), file.read_text()))
    said = output(SHORT, "check", "-vv", "--json", "-config", file)
    assert all(f'"source.db{number}"' in said for number in range(len(sources)))
    assert ("Access denied" in said) is lets_in
    assert "source.db" in output(SHORT, "run", "-vv", "-config", file)


_ALL = """{sources}
[sink.all]
type = "stub_discard"
sources = ["db0", "db1", "db2"]
"""


WELL = """
[source.db1]
type = "postgres"
dsn = "{dsn}"
publication = "p"
snapshot = "never"
replicationSlot = "s"
startRetryInterval = "200ms"
debug = true
verbose = true
[sink.kafka1]
type = "kafka"
sources = ["db1"]
hosts = ["{kafka}"]
topicPrefix = "{prefix}"
handlers = ["passthrough"]
debug = true
verbose = true
[sink.kafka1.kafka]
debug = "all"
"sasl.password" = "{long}"
"ssl.key.password" = "{short}"
[log]
level = "debug"
"""


def test_a_run_with_all_debug_messages_shows_no_password(
    own_postgres: EmbeddedPostgres, kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    with psycopg2.connect(own_postgres.build_dsn()) as session, session.cursor() as cursor:
        cursor.execute("SET password_encryption = 'scram-sha-256'")
        cursor.execute(f"CREATE ROLE streamer SUPERUSER LOGIN PASSWORD '{SHORT}'")
        cursor.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR ALL TABLES")
        (own_postgres.data_dir / "pg_hba.conf").write_text(
            "local all postgres trust\nhost all,replication all 127.0.0.1/32 scram-sha-256\n"
        )
        cursor.execute("SELECT pg_reload_conf()")
    session.close()
    dsn = make_dsn(own_postgres.build_dsn(tcp=True), user="streamer", password=SHORT)
    with Service(tmp_path, WELL.format(dsn=dsn, kafka=kafka, prefix=topic_prefix, long=LONG, short=SHORT)) as service:
        service.start()
        paths = ("/", "/status", "/stats", "/metrics", "/debug/on", "/openapi.json")
        pages = [service.text(path) for path in paths]
        own_postgres.stop()
        service.until(lambda: service.status()[0] == 500, "the source to be told of")
        pages += [service.text("/stats"), service.text("/metrics"), str(service.status())]
        own_postgres.start()
        service.until(lambda: service.status()[0] == 200, "the source to be well")
        with psycopg2.connect(own_postgres.build_dsn()) as session, session.cursor() as cursor:
            cursor.execute("INSERT INTO t VALUES (1)")
        session.close()
        service.until(lambda: service.stats()["sink.kafka1"]["events"] > 0, "the row to be in Kafka")
        assert service.stop() == 0
    said = service.log.read_text()
    assert all(word in said for word in ("attempt 1", "wrote 1 records", "BRKMAIN"))
    for page in (*pages, said):
        assert_hidden(SHORT, page)
        assert_hidden(LONG, page)
