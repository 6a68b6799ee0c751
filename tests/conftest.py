"""Real servers for the tests: PostgreSQL, MariaDB, MySQL and Apache Kafka, started once a session.

PSQL_STREAMER_TEST_DSN     use this server instead of starting one
PSQL_STREAMER_TEST_KAFKA   use these brokers (host:port,...) instead of starting one
"""

from __future__ import annotations

import logging
import os
import signal
import uuid
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from psql_streamer.checkpoint.store import Store
from psql_streamer.embedded.kafka import EmbeddedKafka
from psql_streamer.embedded.mariadb import EmbeddedMariadb
from psql_streamer.embedded.mock_kafka import MockKafka
from psql_streamer.embedded.mysql import EmbeddedMysql
from psql_streamer.embedded.mysql_binaries import provide_mysql_binaries
from psql_streamer.embedded.postgres import EmbeddedPostgres, find_server_binaries
from psql_streamer.errors import StreamerError
from tests.apicurio import ApicurioRegistry
from tests.database import Database, fresh_database
from tests.java_options import JAVA_OPTIONS
from tests.mariadb import Schema, fresh_schema
from tests.shared_stream import SharedStream

GIVEN_DSN = os.environ.get("PSQL_STREAMER_TEST_DSN")
GIVEN_KAFKA = os.environ.get("PSQL_STREAMER_TEST_KAFKA")

# A shell that starts a job in the background has it ignore SIGINT, and the tests' own processes would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


for _variable, _options in JAVA_OPTIONS.items():
    os.environ.setdefault(_variable, _options)


@cache
def _versions() -> list[int]:
    return [] if GIVEN_DSN else sorted(find_server_binaries())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`every_postgres`: once for each version on this machine; `either_postgres` and `shared_stream`: on the oldest and
    on the newest of them, where those between come in the long run; everything else runs on the newest."""
    versions: list[int | None] = [*_versions()] or [None]
    if "either_postgres" in metafunc.fixturenames:
        between = versions[1:-1]
        marked = [pytest.param(one, marks=pytest.mark.soak if one in between else ()) for one in versions]
        metafunc.parametrize("either_postgres", marked, indirect=True, ids=[_name(one) for one in versions])
    if "every_postgres" in metafunc.fixturenames:
        metafunc.parametrize("every_postgres", versions, indirect=True, ids=_name)
    if "shared_stream" in metafunc.fixturenames:
        ends = list(dict.fromkeys((versions[0], versions[-1])))
        metafunc.parametrize("shared_stream", ends, indirect=True, ids=_name, scope="module")


def _name(version: int | None) -> str:
    return f"postgres{version}" if version else "given"


_FOLDERS = ("unit", "integration", "system")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Quick tests first, so that a quick failure shows quickly.

    What a test shows on MariaDB it shows on MySQL in `make soak`; those of types are on both always.
    """
    for item in items:
        parameters = getattr(item, "callspec", None)
        on_mysql = parameters is not None and parameters.params.get("every_schema") == "mysql"
        if on_mysql and item.path.name != "test_mysql_types.py":
            item.add_marker(pytest.mark.soak)
    items.sort(key=lambda item: (item.get_closest_marker("slow") is not None, _FOLDERS.index(item.path.parent.name)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Give pytest's handler its own format again: pytest adds it to all loggers that do not propagate, and pyspark's
    makes it write JSON, with all quotes escaped.
    """
    plugin = item.config.pluginmanager.get_plugin("logging-plugin")
    assert plugin is not None
    plugin.caplog_handler.setFormatter(plugin.formatter)


@pytest.fixture
def logging_as_it_was() -> Iterator[None]:
    """For tests of commands, which set up the log of the process."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before


@pytest.fixture(scope="session")
def postgres_servers() -> Iterator[Callable[[int | None], str]]:
    """Version (None: the newest) -> DSN of a running server; each is started when first asked for."""
    running: dict[int, EmbeddedPostgres] = {}

    def dsn(version: int | None) -> str:
        if GIVEN_DSN:
            return GIVEN_DSN
        binaries = find_server_binaries()
        wanted = version or max(binaries)
        if wanted not in running:
            server = EmbeddedPostgres(binaries[wanted])
            running[wanted] = server
            server.start()
        return running[wanted].build_dsn()

    try:
        yield dsn
    finally:
        for server in running.values():
            server.close()


@pytest.fixture(scope="session")
def postgres(postgres_servers: Callable[[int | None], str]) -> str:
    """DSN of the superuser on a server with wal_level=logical, shared by all tests: do not stop it."""
    return postgres_servers(None)


@pytest.fixture
def own_postgres() -> Iterator[EmbeddedPostgres]:
    """A server of this test alone, running, to be stopped, killed and reconfigured at will."""
    binaries = find_server_binaries()
    with EmbeddedPostgres(binaries[max(binaries)]) as server:
        yield server


@pytest.fixture
def database(postgres: str) -> Iterator[Database]:
    """A fresh database of this test alone."""
    with fresh_database(postgres, f"test_{uuid.uuid4().hex[:12]}") as made:
        yield made


@pytest.fixture
def every_postgres(request: pytest.FixtureRequest, postgres_servers: Callable[[int | None], str]) -> Iterator[Database]:
    """As `database`, once on each PostgreSQL version that is present."""
    with fresh_database(postgres_servers(request.param), f"test_{uuid.uuid4().hex[:12]}") as made:
        yield made


@pytest.fixture
def either_postgres(
    request: pytest.FixtureRequest, postgres_servers: Callable[[int | None], str]
) -> Iterator[Database]:
    """The same on the oldest and on the newest version."""
    with fresh_database(postgres_servers(request.param), f"test_{uuid.uuid4().hex[:12]}") as made:
        yield made


@pytest.fixture(scope="module")
def shared_stream(
    request: pytest.FixtureRequest, postgres_servers: Callable[[int | None], str]
) -> Iterator[SharedStream]:
    """A source at work on a database that the tests of one module share."""
    with fresh_database(postgres_servers(request.param), f"test_{uuid.uuid4().hex[:12]}") as made:
        made.execute("CREATE PUBLICATION p FOR ALL TABLES")
        with SharedStream(made).streaming() as streaming:
            yield streaming


@pytest.fixture
def stream(shared_stream: SharedStream) -> SharedStream:
    """A source at work, with nothing in its database and nothing unread."""
    shared_stream.empty()
    return shared_stream


@pytest.fixture(scope="session")
def mariadb() -> Iterator[EmbeddedMariadb]:
    """A MariaDB with a binary log, shared by all tests: do not stop it."""
    with EmbeddedMariadb() as server:
        yield server


@pytest.fixture
def own_mariadb() -> Iterator[EmbeddedMariadb]:
    """A server of this test alone, running, to be stopped, killed and reconfigured at will."""
    with EmbeddedMariadb() as server:
        yield server


@pytest.fixture(scope="session")
def mysql() -> Iterator[EmbeddedMysql]:
    """A MySQL with a binary log, shared by all tests: do not stop it. Skips, with the reason, where there is none."""
    try:
        binaries = provide_mysql_binaries()
        binaries.read_version()
    except StreamerError as error:
        pytest.skip(str(error))
    with EmbeddedMysql(binaries) as server:
        yield server


@pytest.fixture(params=["mariadb", "mysql"])
def every_schema(request: pytest.FixtureRequest) -> Iterator[Schema]:
    """As `schema`, once on MariaDB and once on MySQL."""
    server = request.getfixturevalue(request.param)
    with fresh_schema(server.host, server.port, server.version, f"test_{uuid.uuid4().hex[:12]}") as made:
        yield made


@pytest.fixture
def schema(mariadb: EmbeddedMariadb) -> Iterator[Schema]:
    """A fresh schema (MySQL's word for database) on `mariadb`, of this test alone."""
    with fresh_schema(mariadb.host, mariadb.port, mariadb.version, f"test_{uuid.uuid4().hex[:12]}") as made:
        yield made


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    """bootstrap.servers of a real Apache Kafka, shared by all tests: do not stop it."""
    if GIVEN_KAFKA:
        yield GIVEN_KAFKA
        return
    with EmbeddedKafka() as broker:
        yield broker.bootstrap


@pytest.fixture(scope="session")
def broker_to_stop() -> Iterator[EmbeddedKafka]:
    """What `broker` hands out."""
    with EmbeddedKafka() as broker:
        yield broker


@pytest.fixture
def broker(broker_to_stop: EmbeddedKafka) -> EmbeddedKafka:
    """A broker, running, to be stopped and killed at will: no other test has it at the same time."""
    if not broker_to_stop.running:
        broker_to_stop.start()
    return broker_to_stop


@pytest.fixture
def mock_kafka() -> Iterator[MockKafka]:
    """librdkafka's mock cluster, one broker, of this test alone: for faults."""
    with MockKafka() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def registry_to_stop() -> Iterator[ApicurioRegistry]:
    """What `registry` hands out."""
    try:
        server = ApicurioRegistry()
    except StreamerError as error:
        pytest.skip(str(error))
    with server:
        yield server


@pytest.fixture
def registry(registry_to_stop: ApicurioRegistry) -> ApicurioRegistry:
    """A real schema registry, running, to be stopped and killed at will. Tests of one file have it: it starts once."""
    if not registry_to_stop.running:
        registry_to_stop.start()
    return registry_to_stop


@pytest.fixture
def topic_prefix() -> str:
    """What the names of this test's topics begin with."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty position store, open."""
    opened = Store(tmp_path / "positions")
    opened.open()
    yield opened
    opened.close()
