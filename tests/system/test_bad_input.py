"""What a user gets wrong first: each ends with one message that says what, where and what to do, and an exit code."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg2
import pytest
from psycopg2.extensions import make_dsn, parse_dsn

from psql_streamer.embedded.ports import free_ports
from psql_streamer.embedded.postgres import EmbeddedPostgres
from tests.database import Database
from tests.service import Service

pytestmark = pytest.mark.behaviour("O1")

FAILED = 1
BAD_CONFIGURATION = 2
SECRET = "hunter2-is-secret"

_RUN = [sys.executable, "-m", "psql_streamer"]
_WITHOUT_USUAL_JAVA = """
import sys
from psql_streamer import cli
from psql_streamer.embedded import java

java._USUAL_PLACES = ()
sys.exit(cli.main(sys.argv[1:]))
"""
_SECONDS = 30.0
"""Ten times as long as the slowest of these takes."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a service ended by itself."""

    code: int
    complaints: list[str]  # what it said last, to whoever started it
    output: str


@dataclass
class Setup:
    """A configuration that works, and the ways to spoil it."""

    folder: Path
    toml: str

    def replaced(self, old: str, new: str) -> Setup:
        """With one piece of the file in place of another."""
        assert old in self.toml
        return Setup(self.folder, self.toml.replace(old, new))

    def ended(self, *, environ: Mapping[str, str] | None = None, command: list[str] = _RUN) -> Ended:
        """Run it until it ends."""
        file = self.folder / "psql-streamer.toml"
        file.write_text(self.toml)
        return _ended([*command, "-config", str(file)], environ or {})


def _ended(command: list[str], environ: Mapping[str, str]) -> Ended:
    ours = ("PG_", "KAFKA_", "PSQL_STREAMER__")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_SECONDS, env=inherited | dict(environ), check=False
    )
    output = done.stdout + done.stderr
    assert "Traceback" not in output
    assert SECRET not in output
    complaints = [line.removeprefix("psql-streamer: ") for line in output.splitlines() if line.startswith("psql-str")]
    return Ended(done.returncode, complaints, output)


def _says(ended: Ended, code: int, pattern: str) -> None:
    """Ended with this exit code and exactly one message, which matches as a whole."""
    assert ended.code == code, ended.output
    assert len(ended.complaints) == 1, ended.output
    assert re.fullmatch(pattern, ended.complaints[0]), ended.complaints[0]


@pytest.fixture
def setup(database: Database, kafka: str, topic_prefix: str, tmp_path: Path) -> Setup:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY); CREATE PUBLICATION shop FOR ALL TABLES")
    [port] = free_ports(1)
    toml = f"""
http = "127.0.0.1:{port}"
lmdb = "{tmp_path}/positions"
startTimeout = "1s"
[source.db1]
type = "postgres"
dsn = "{database.dsn}"
publication = "shop"
snapshot = "never"
replicationSlot = "{database.name}"
startRetryInterval = "200ms"
[sink.kafka1]
type = "kafka"
sources = ["db1"]
hosts = ["{kafka}"]
topicPrefix = "{topic_prefix}"
handlers = ["passthrough"]
"""
    return Setup(tmp_path, toml)


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that nobody listens at, and that nobody else takes meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def _with_dsn(setup: Setup, database: Database, **changed: str | int) -> Setup:
    return setup.replaced(database.dsn, make_dsn(**(parse_dsn(database.dsn) | {"password": SECRET} | changed)))


# The server.


@pytest.mark.parametrize("dsn", [SECRET, f"host=localhost dbname=shop {SECRET}", f"host=localhost pasword={SECRET}"])
def test_a_dsn_in_wrong_syntax(setup: Setup, database: Database, dsn: str) -> None:
    ended = setup.replaced(database.dsn, dsn).ended()
    _says(ended, BAD_CONFIGURATION, r".*\.toml: source\.db1\.dsn: .*is not a libpq connection string: write host=.*")


def test_a_dsn_with_a_port_that_is_no_number(setup: Setup, database: Database) -> None:
    ended = setup.replaced(database.dsn, f"postgres://streamer:{SECRET}@localhost:port/shop").ended()
    _says(ended, BAD_CONFIGURATION, r".*\.toml: source\.db1\.dsn: .*port must be a number from 1 to 65535 .*")


def test_a_wrong_password(own_postgres: EmbeddedPostgres, setup: Setup, database: Database) -> None:
    with psycopg2.connect(own_postgres.build_dsn()) as session, session.cursor() as cursor:
        cursor.execute("SET password_encryption = 'scram-sha-256'; CREATE ROLE streamer LOGIN REPLICATION PASSWORD 'x'")
    session.close()
    (own_postgres.data_dir / "pg_hba.conf").write_text(
        "local all postgres trust\n"
        "host all all 127.0.0.1/32 scram-sha-256\n"
        "host replication all 127.0.0.1/32 scram-sha-256\n"
    )
    own_postgres.restart()
    dsn = make_dsn(own_postgres.build_dsn(tcp=True), user="streamer", password=SECRET)
    ended = setup.replaced(database.dsn, dsn).ended()
    _says(
        ended,
        FAILED,
        r'source\.db1: .* password authentication failed for user "streamer".*: check user and password in the dsn, .*',
    )


def test_a_database_that_does_not_exist(setup: Setup, database: Database) -> None:
    ended = _with_dsn(setup, database, dbname="absent").ended()
    _says(ended, FAILED, r'source\.db1: .*database "absent" does not exist: check the database name in the dsn')


def test_a_user_that_does_not_exist(setup: Setup, database: Database) -> None:
    ended = _with_dsn(setup, database, user="absent").ended()
    _says(ended, FAILED, r'source\.db1: .*role "absent" does not exist: check user and password in the dsn, .*')


def test_a_role_that_may_not_replicate(setup: Setup, database: Database) -> None:
    role = f"{database.name}_reader"
    database.execute(f"CREATE ROLE {role} LOGIN")
    try:
        ended = _with_dsn(setup, database, user=role).ended()
    finally:
        database.execute(f"DROP ROLE {role}")
    _says(ended, FAILED, r"source\.db1: .*start (WAL sender|walsender).*: ALTER ROLE \.\.\. REPLICATION")


def test_a_port_where_no_server_is(setup: Setup, database: Database, closed_port: int) -> None:
    ended = _with_dsn(setup, database, host="127.0.0.1", port=closed_port).ended()
    _says(ended, FAILED, rf"source\.db1: .*port {closed_port} failed: Connection refused: check host and port in .*")


def test_a_host_that_does_not_exist(setup: Setup, database: Database) -> None:
    ended = _with_dsn(setup, database, host="absent.invalid").ended()
    _says(ended, FAILED, r'source\.db1: .*host name "absent\.invalid".*: check host and port in the dsn')


def test_a_missing_publication(setup: Setup, database: Database) -> None:
    ended = setup.replaced('publication = "shop"', 'publication = "shopp"').ended()
    what = rf'source\.db1: publication "shopp" does not exist in the database "{database.name}"; did you mean shop\?'
    _says(ended, FAILED, rf'{what}: correct the name, or create it: CREATE PUBLICATION "shopp" FOR ALL TABLES')


def test_a_slot_that_another_process_reads(
    setup: Setup, database: Database, kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = setup.toml.partition("startTimeout")[2].partition("\n")[2]
    with Service(tmp_path / "other", other) as service:
        service.start()
        pid = database.value("SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", database.name)
        ended = setup.ended()
        what = rf'source\.db1: slot "{database.name}" is active for PID {pid}'
        _says(ended, FAILED, rf"{what}: stop the other consumer, or set replicationSlot to another name")
        assert service.status()[0] == 200, "the one that was there first is not disturbed"


# The brokers.


def test_a_broker_that_cannot_be_reached(setup: Setup, kafka: str, closed_port: int) -> None:
    ended = setup.replaced(kafka, f"127.0.0.1:{closed_port}").ended()
    what = rf"sink\.kafka1: brokers gave no metadata within 2 s: 127\.0\.0\.1:{closed_port}.*refused.*"
    _says(ended, FAILED, rf"{what}: check hosts, the network and the security\.\* properties")


# The file.


def test_an_unknown_key(setup: Setup) -> None:
    ended = setup.replaced("startRetryInterval", "startRetryIntervall").ended()
    _says(
        ended,
        BAD_CONFIGURATION,
        r".*\.toml: source\.db1: unknown key startRetryIntervall; did you mean startRetryInterval\?",
    )


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ('type = "postgres"', 'type = "postgress"', r"source\.db1\.type: .* known source; did you mean postgres\?"),
        ('type = "kafka"', 'type = "kafkaa"', r"sink\.kafka1\.type: .* known sink; did you mean kafka\?"),
        ('["passthrough"]', '["sparkk"]', r"sink\.kafka1\.handlers: .* known handler; did you mean spark\?"),
        (
            "topicPrefix",
            'format = "evnt"\ntopicPrefix',
            r'sink\.kafka1\.format: "evnt" is not a known format; did you mean event\?',
        ),
    ],
    ids=["source", "sink", "handler", "format"],
)
def test_a_name_that_stands_for_nothing(setup: Setup, right: str, wrong: str, message: str) -> None:
    _says(setup.replaced(right, wrong).ended(), BAD_CONFIGURATION, rf".*\.toml: {message}")


def test_a_table_that_the_format_cannot_take(setup: Setup, database: Database) -> None:
    database.execute("CREATE TABLE log (note text)")
    flat = setup.replaced("topicPrefix", 'format = "flat"\ntableTopicMapping = { oders = "x" }\ntopicPrefix')
    ended = flat.ended()
    what = r'sink\.kafka1: format "flat" cannot take public\.log: the rows have no key: give it a primary key, .*'
    _says(ended, BAD_CONFIGURATION, what)
    assert 'tableTopicMapping: "oders" fits no published table; did you mean orders?' in ended.output


def test_two_sinks_of_one_name(setup: Setup) -> None:
    twice = Setup(setup.folder, setup.toml + '[sink.kafka1]\ntype = "stub_log"\nsources = ["db1"]\n')
    what = r".*\.toml: line \d+: \[sink\.kafka1\] is declared twice"
    _says(twice.ended(), BAD_CONFIGURATION, rf"{what}: every source and sink needs a name of its own")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    ended = _ended([*_RUN, "-config", str(tmp_path / "absent.toml")], {})
    _says(ended, BAD_CONFIGURATION, r".*absent\.toml: cannot be read: no such file or directory: name the file .*")


@pytest.mark.parametrize("environ", [{}, {"PSQL_STREAMER__HTTP": ":8080"}], ids=["nothing", "as the container sets it"])
def test_no_configuration_at_all(environ: dict[str, str]) -> None:
    ended = _ended(_RUN, environ)
    wanted = "PG_HOST, PG_DATABASE, KAFKA_BROKERS"
    _says(ended, BAD_CONFIGURATION, f"no configuration: give -config FILE, or set the environment variables {wanted}")


# This machine.


def test_an_lmdb_folder_that_does_not_exist(setup: Setup) -> None:
    ended = setup.replaced("/positions", "/absent/positions").ended()
    _says(ended, FAILED, r"lmdb: .*/absent/positions cannot be opened .*: make sure that the folder .*/absent exists.*")


def test_an_lmdb_folder_that_may_not_be_written_to(setup: Setup, tmp_path: Path) -> None:
    # Root may write everywhere but into the kernel's own file systems.
    locked = Path("/sys") if os.geteuid() == 0 else tmp_path / "locked"
    locked.mkdir(mode=0o500, exist_ok=True)
    ended = setup.replaced(f"{tmp_path}/positions", f"{locked}/positions").ended()
    _says(ended, FAILED, rf"lmdb: {locked}/positions cannot be opened .*: make sure .* this user may write to it")


def test_a_folder_in_place_of_the_lmdb_file(setup: Setup, tmp_path: Path) -> None:
    ended = setup.replaced(f"{tmp_path}/positions", str(tmp_path)).ended()
    _says(ended, FAILED, rf'lmdb: {tmp_path} is a folder: name a file in it: lmdb = "{tmp_path}/positions"')


def test_an_lmdb_file_that_another_instance_holds(setup: Setup, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = setup.toml.partition("startTimeout")[2].partition("\n")[2]
    with Service(tmp_path / "other", other) as service:
        service.start()
        ended = setup.replaced(f"{tmp_path}/positions", str(service.lmdb)).ended()
        what = rf"lmdb: {service.lmdb} is in use by PID {service.pid}"
        _says(ended, FAILED, rf"{what}: stop that process, or set lmdb to another path")
        assert service.status()[0] == 200, "the one that was there first is not disturbed"


def test_an_http_address_that_is_in_use(setup: Setup) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = setup.ended(environ={"PSQL_STREAMER__HTTP": address})
    what = rf"http {address}: address already in use"
    _says(ended, FAILED, rf"{what}: stop the process that listens there, or set another address with the key http")


def test_no_java_for_spark(setup: Setup, tmp_path: Path) -> None:
    ruled = setup.replaced('["passthrough"]', '["spark"]\n[spark.tables.t]\nsql = "SELECT * FROM changes"\n')
    ended = ruled.ended(
        environ={"PATH": str(tmp_path), "JAVA_HOME": ""}, command=[sys.executable, "-c", _WITHOUT_USUAL_JAVA]
    )
    _says(ended, FAILED, r"handler\.spark: Spark needs Java: no Java 17 or later found: install one: .*install.*")


def test_all_of_this_takes_seconds(setup: Setup, closed_port: int, database: Database) -> None:
    began = time.monotonic()
    _with_dsn(setup, database, host="127.0.0.1", port=closed_port).ended()
    assert time.monotonic() - began < 10
