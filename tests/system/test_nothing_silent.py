"""Whatever goes wrong under load, the topics end up equal to the tables, or the service says what keeps them apart."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from psycopg2.extensions import parse_dsn

from psql_streamer.embedded.kafka import EmbeddedKafka
from psql_streamer.embedded.postgres import EmbeddedPostgres
from tests.database import Database
from tests.delivered import assert_nothing_is_lost, assert_order_per_key
from tests.kafka_reader import consume
from tests.mock_brokers import MockBrokers
from tests.sections import kafka_section, postgres_section
from tests.service import Service
from tests.tcp_proxy import TcpProxy
from tests.write_load import SCHEMA, TABLES, WriteLoad

pytestmark = pytest.mark.slow

_TOLD_WITHIN = 60.0
"""Seconds in which a fault must have been got over, or be named."""


@dataclass
class Scene:
    """A service under load between PostgreSQL, behind a proxy, and Kafka."""

    database: Database
    server: EmbeddedPostgres
    proxy: TcpProxy
    broker: EmbeddedKafka | MockBrokers
    prefix: str
    service: Service
    load: WriteLoad

    def is_equal(self) -> bool:
        """Whether what is committed now arrives within some seconds, and the folded topics equal the tables."""
        try:
            self.service.until_durable(self.database)
        except AssertionError:
            return False
        records = consume(self.broker.bootstrap, [f"{self.prefix}.{table}" for table in TABLES], timeout=60)
        assert_nothing_is_lost(records, self.database, TABLES)
        assert_order_per_key(records)
        return True

    def complaint(self) -> str:
        """What /status says when it is not 200, or what the service ended with; empty while all is said to be well."""
        code, answer = self.service.status()
        if code == 500:
            return "; ".join(part["reason"] for part in answer["parts"].values() if not part["ok"])
        return "" if code == 200 else self.service.tail().strip().splitlines()[-1]

    def until_told(self) -> str:
        """Wait until the service names what is wrong; what it says."""
        deadline = time.monotonic() + _TOLD_WITHIN
        while not (said := self.complaint()):
            assert time.monotonic() < deadline, f"silence for {_TOLD_WITHIN} s"
            time.sleep(0.1)
        return said


@pytest.fixture
def scene(own_postgres: EmbeddedPostgres, broker: EmbeddedKafka, topic_prefix: str, tmp_path: Path) -> Iterator[Scene]:
    with _scene(own_postgres, broker, topic_prefix, tmp_path) as made:
        yield made


@contextmanager
def _scene(server: EmbeddedPostgres, broker: EmbeddedKafka | MockBrokers, prefix: str, folder: Path) -> Iterator[Scene]:
    database = Database("postgres", server.build_dsn(), server.version)
    database.execute(SCHEMA)
    with ExitStack() as stack:
        proxy = stack.enter_context(TcpProxy(int(parse_dsn(database.dsn)["port"])))
        far = replace(database, dsn=proxy.dsn(database.dsn))
        config = postgres_section(far, startRetryInterval="200ms", receiveTimeout="3s")
        config += kafka_section(broker.bootstrap.split(",")[0], prefix, timeout="500ms", maxAttempts=2)
        service = stack.enter_context(Service(folder, config))
        service.start()
        load = stack.enter_context(WriteLoad(database))
        load.until_more(50)
        yield Scene(database, server, proxy, broker, prefix, service, load)


@contextmanager
def _broken_network(scene: Scene) -> Iterator[None]:
    scene.proxy.refuse()
    yield
    scene.proxy.accept()


@contextmanager
def _frozen_network(scene: Scene) -> Iterator[None]:
    scene.proxy.freeze()
    yield
    scene.proxy.thaw()


@contextmanager
def _server_down(scene: Scene) -> Iterator[None]:
    scene.server.stop("immediate")
    yield
    scene.server.start()


@contextmanager
def _broker_away(scene: Scene) -> Iterator[None]:
    assert isinstance(scene.broker, EmbeddedKafka)
    scene.broker.stop(kill=True)
    yield
    scene.broker.start()


@contextmanager
def _broker_frozen(scene: Scene) -> Iterator[None]:
    assert isinstance(scene.broker, EmbeddedKafka)
    os.kill(scene.broker.pid, signal.SIGSTOP)
    yield
    os.kill(scene.broker.pid, signal.SIGCONT)


PASSING = {
    "network broken": (_broken_network, "closed"),
    "network frozen": (_frozen_network, "not even an answer"),
    "server down": (_server_down, "server"),
    "broker away": (_broker_away, "attempt"),
    "broker frozen": (_broker_frozen, "attempt"),
}
"""Fault -> what brings it and takes it away again, and a word that its complaint holds."""


@pytest.mark.behaviour("R6")
@pytest.mark.parametrize(
    "fault",
    [pytest.param(one, marks=[] if one == "server down" else [pytest.mark.soak]) for one in PASSING],
)
def test_what_passes_is_told_while_it_lasts_and_costs_nothing(scene: Scene, fault: str) -> None:
    bring, word = PASSING[fault]
    with bring(scene):
        said = scene.until_told()
        assert word in said, said
    scene.service.until(lambda: scene.service.status()[0] == 200, "the service to be well again")
    scene.load.until_more(50)
    scene.load.stop()
    assert scene.is_equal()
    assert scene.service.stop() == 0


@pytest.mark.soak
@pytest.mark.behaviour("R6")
def test_a_broker_of_two_that_is_away_is_told_and_costs_nothing(
    own_postgres: EmbeddedPostgres, topic_prefix: str, tmp_path: Path
) -> None:
    with MockBrokers(2) as brokers:
        for topic in (f"{topic_prefix}.{table}" for table in TABLES):
            brokers.create(topic, 4)
            for partition in range(4):
                brokers.lead(topic, partition, 1 + partition % 2)
        with _scene(own_postgres, brokers, topic_prefix, tmp_path) as scene:
            brokers.take_down(2)
            said = scene.until_told()
            assert "attempt" in said, said
            brokers.bring_up(2)
            scene.service.until(lambda: scene.service.status()[0] == 200, "the service to be well again")
            scene.load.until_more(50)
            scene.load.stop()
            assert scene.is_equal()
            assert scene.service.stop() == 0


@pytest.mark.behaviour("R2")
@pytest.mark.parametrize("moment", [0, *(pytest.param(later, marks=pytest.mark.soak) for later in (1, 2))])
def test_a_service_that_is_killed_goes_on_where_it_was(scene: Scene, moment: int) -> None:
    time.sleep(0.1 * moment)
    scene.service.kill()
    scene.load.until_more(50)
    scene.service.start()
    scene.load.stop()
    assert scene.is_equal()


def _lead_elsewhere(scene: Scene, stack: ExitStack) -> None:
    other = stack.enter_context(EmbeddedPostgres(scene.server.bin_dir))
    there = Database("postgres", other.build_dsn(), other.version)
    there.execute(SCHEMA + "INSERT INTO kept SELECT generate_series(1, 500)")
    there.query("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", f"s_{scene.database.name}")
    scene.proxy.target = other.port
    scene.proxy.cut()


def _drop_the_publication(scene: Scene, _: ExitStack) -> None:
    scene.database.execute("DROP PUBLICATION p")


def _make_the_publication_anew(scene: Scene, _: ExitStack) -> None:
    with scene.database.session() as session, session.cursor() as cursor:
        cursor.execute("DROP PUBLICATION p")
        session.commit()
        scene.load.until_more(20)
        cursor.execute("CREATE PUBLICATION p FOR TABLE kept, emptied")
        session.commit()


def _drop_the_slot(scene: Scene, _: ExitStack) -> None:
    slot = f"s_{scene.database.name}"
    scene.proxy.refuse()
    scene.server.restart("immediate")
    scene.database.query("SELECT pg_drop_replication_slot(%s)", slot)
    scene.proxy.accept()


LASTING: dict[str, tuple[Callable[[Scene, ExitStack], None], str]] = {
    "another server": (_lead_elsewhere, 'system identifier "'),
    "publication dropped": (_drop_the_publication, 'publication "p"'),
    "publication made anew": (_make_the_publication_anew, 'publication "p"'),
    "slot dropped": (_drop_the_slot, "does not exist, but changes up to"),
}
"""Fault -> what brings it, and what the service ends with."""


@pytest.mark.behaviour("R5")
@pytest.mark.parametrize("fault", LASTING)
def test_what_leaves_a_gap_ends_the_service_with_its_name(scene: Scene, fault: str) -> None:
    bring, told = LASTING[fault]
    with ExitStack() as stack:
        bring(scene, stack)
        assert scene.service.wait(_TOLD_WITHIN) == 1
        assert told in scene.complaint()


def test_a_full_disk_under_the_positions_ends_the_service_with_its_name(scene: Scene, tmp_path: Path) -> None:
    assert scene.service.stop() == 0
    small = tmp_path / "small"
    small.mkdir()
    with _small_disk(small):
        (small / "positions.lmdb").write_bytes(scene.service.lmdb.read_bytes())
        text = scene.service.config.read_text()
        scene.service.config.write_text(text.replace(str(scene.service.lmdb), str(small / "positions.lmdb")))
        scene.service.start()
        filler = _fill(small)
        columns = ", ".join(f"c{i} int" for i in range(1000))
        scene.database.execute(f"CREATE TABLE wide (id int PRIMARY KEY, {columns}); ALTER PUBLICATION p ADD TABLE wide")
        scene.database.execute("INSERT INTO wide VALUES (1)")  # its shape is stored
        assert scene.service.wait(_TOLD_WITHIN) == 1
        assert "lmdb: " in scene.complaint()
        assert "free space" in scene.complaint()
        filler.unlink()
        scene.service.start()
        scene.load.stop()
        assert scene.is_equal()
        assert scene.service.stop() == 0


def test_a_position_file_that_is_removed_ends_the_service_with_its_name_and_the_next_start_goes_on(
    scene: Scene,
) -> None:
    scene.service.until_it_gets_on()
    scene.service.lmdb.unlink()
    assert scene.service.wait(_TOLD_WITHIN) == 1
    assert f"lmdb: {scene.service.lmdb} was removed while the service runs" in scene.complaint()
    assert scene.service.lmdb.exists(), "it was written anew"
    scene.service.start()
    scene.load.stop()
    assert scene.is_equal()
    assert scene.service.stop() == 0


def _fill(folder: Path) -> Path:
    """A file that takes all the space there is."""
    file = folder / "filler"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT)
    with suppress(OSError):
        while True:
            os.write(descriptor, bytes(4096))
    os.close(descriptor)
    assert os.statvfs(folder).f_bavail == 0
    return file


@contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    """A file system of 256 kB in the folder."""
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root may mount a small file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
