"""The service with its rules on a Spark cluster: workers, and with them executors, come and go."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.connect_server import ConnectServer
from tests.database import Database
from tests.delivered import assert_order_per_key
from tests.fold import fold_events, select
from tests.kafka_reader import consume
from tests.sections import kafka_section, postgres_section
from tests.service import AS_INSTALLED, Service
from tests.spark_cluster import SparkCluster, descendants
from tests.write_load import SCHEMA, WriteLoad

pytestmark = pytest.mark.slow

MODULES = {
    "shop/__init__.py": "",
    "shop/rules.py": """
from pyspark.sql import functions as f

from shop.words import loud

shout = f.udf(loud, "string")


@f.udf("int")
def twice(n):
    import factors

    return None if n is None else n * factors.TWO


def kept(df):
    return df.withColumn("v", shout("v")).withColumn("twice", twice("n"))
""",
    "shop/words.py": "def loud(text):\n    return None if text is None else text[::-1] + '!'\n",
    "factors.py": "TWO = 2\n",
}

RULES = """
[spark.tables."public.kept"]
function = "shop.rules:kept"
[spark.tables."public.emptied"]
sql = "SELECT *, length(v) AS length FROM changes WHERE id % 3 <> 0"
"""

ORACLE = """
CREATE VIEW kept_by_rule AS SELECT id, reverse(v) || '!' AS v, n, n * 2 AS twice FROM kept;
CREATE VIEW emptied_by_rule AS SELECT *, length(v) AS length FROM emptied WHERE id % 3 <> 0;
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path) as made:
        yield made


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """A folder with the modules of the rules, which only the service has on its path."""
    for name, text in MODULES.items():
        path = tmp_path / "modules" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "modules"


def service_on(where: str, database: Database, kafka: str, prefix: str, folder: Path, modules: Path) -> Service:
    """where: lines of [spark]."""
    spark = f"\n[spark]\n{where}\n{RULES}"
    sections = postgres_section(database, startRetryInterval="100ms") + kafka_section(kafka, prefix, handlers=["spark"])
    environ = {**os.environ, "PYTHONPATH": str(modules)}
    # pyspark[connect] brings pandas, which is hidden from a service without it.
    command = (sys.executable, "-m", "psql_streamer") if where.startswith("remote") else AS_INSTALLED
    return Service(folder, 'startTimeout = "120s"\n' + sections + spark, command, environ=environ)


def on_cluster(cluster: SparkCluster) -> str:
    return f"""
master = "{cluster.url}"
[spark.conf]
"spark.driver.host" = "127.0.0.1"
"spark.executor.memory" = "512m"
"spark.executor.extraJavaOptions" = "-XX:TieredStopAtLevel=1"
"""


def start(service: Service) -> None:
    """A JVM, executors and their Python take their time on a machine that has other things to do."""
    service.start(wait=False)
    service.until(lambda: service.status()[0] == 200, "the service to be well", 240)


def until_it_says(service: Service, words: str) -> None:
    service.until(lambda: words in str(service.status()[1]), f"/status to say {words!r}")


def figure(service: Service, name: str) -> int:
    return int(service.stats().get("handler.spark", {}).get(name, 0))


def until_batches(service: Service, more: int) -> None:
    wanted = figure(service, "batches") + more
    service.until(lambda: figure(service, "batches") >= wanted, f"{more} batches to go through Spark")


def until_executors(service: Service, number: int) -> None:
    service.until(lambda: figure(service, "executors") == number, f"{number} executors")


def assert_topics_are_the_tables_by_rule(database: Database, kafka: str, prefix: str) -> None:
    database.execute(ORACLE)
    records = consume(kafka, [f"{prefix}.public.{table}" for table in ("kept", "emptied")], timeout=60)
    folded = fold_events(records)
    assert folded.get("public.kept", {}) == select(database, "kept_by_rule")
    assert folded.get("public.emptied", {}) == select(database, "emptied_by_rule")
    assert_order_per_key(records)


@pytest.mark.soak
def test_a_worker_that_is_killed_under_load_costs_nothing_and_without_any_the_service_waits_aloud(
    database: Database, kafka: str, topic_prefix: str, tmp_path: Path, cluster: SparkCluster, modules: Path
) -> None:
    database.execute(SCHEMA)
    with service_on(on_cluster(cluster), database, kafka, topic_prefix, tmp_path, modules) as service:
        start(service)
        assert "modules of rules: factors, shop" in service.log.read_text()
        with WriteLoad(database, pause=0.02) as load:
            until_executors(service, 2)
            until_batches(service, 3)
            cluster.kill_worker(0)
            until_executors(service, 1)
            until_batches(service, 3)
            cluster.kill_worker(1)
            until_it_says(service, f"waiting for a worker of {cluster.url}")
            assert service.status()[0] != 200
            cluster.start_worker(2)
            until_executors(service, 1)
            load.stop()
        service.until_durable(database)
        assert service.status()[0] == 200
        assert service.stop() == 0
    assert "Executor" in cluster.executors_wrote(), "this looks where executors write"
    assert "Running task" not in cluster.executors_wrote(), "what Spark logs of tasks may quote values"
    assert_topics_are_the_tables_by_rule(database, kafka, topic_prefix)


@pytest.mark.soak
def test_tasks_executors_and_the_jvm_that_are_killed_again_and_again_under_load_cost_nothing(
    database: Database, kafka: str, topic_prefix: str, tmp_path: Path, cluster: SparkCluster, modules: Path
) -> None:
    database.execute(SCHEMA)
    with service_on(on_cluster(cluster), database, kafka, topic_prefix, tmp_path, modules) as service:
        start(service)
        with WriteLoad(database, pause=0.02) as load:
            until_batches(service, 2)
            for _ in range(3):
                for find in (cluster.python_workers, cluster.executors, lambda: jvms(service)):
                    kill_one(find, service)
                    until_batches(service, 3)
            load.stop()
        service.until_durable(database)
        assert figure(service, "engine_restarts") == 3
        assert service.stop() == 0
    assert_topics_are_the_tables_by_rule(database, kafka, topic_prefix)


def jvms(service: Service) -> list[psutil.Process]:
    """The JVM of the service."""
    return descendants(service.pid, "org.apache.spark.deploy.SparkSubmit")


def kill_one(find: Callable[[], list[psutil.Process]], service: Service) -> None:
    """Kill the first that there is, when there is one."""
    service.until(lambda: bool(find()), "a process to kill")
    with suppress(psutil.NoSuchProcess):
        find()[0].kill()


@pytest.mark.soak
def test_a_master_that_starts_again_without_its_state_is_registered_with_again(
    database: Database, kafka: str, topic_prefix: str, tmp_path: Path, cluster: SparkCluster, modules: Path
) -> None:
    database.execute(SCHEMA)
    with service_on(on_cluster(cluster), database, kafka, topic_prefix, tmp_path, modules) as service:
        start(service)
        with WriteLoad(database, pause=0.02) as load:
            until_executors(service, 2)
            cluster.kill_master()
            until_it_says(service, f"the Spark master {cluster.url} does not answer, the executors that are left go on")
            until_batches(service, 3)
            cluster.start_master()
            service.until(lambda: figure(service, "engine_restarts") == 1, "the application to be registered again")
            until_batches(service, 3)
            load.stop()
        service.until_durable(database)
        assert service.stop() == 0
    assert_topics_are_the_tables_by_rule(database, kafka, topic_prefix)


@pytest.mark.soak
def test_a_service_that_waits_for_a_worker_stops_in_time_and_goes_on_later(
    database: Database, kafka: str, topic_prefix: str, tmp_path: Path, cluster: SparkCluster, modules: Path
) -> None:
    database.execute(SCHEMA)
    with service_on(on_cluster(cluster), database, kafka, topic_prefix, tmp_path, modules) as service:
        start(service)
        cluster.kill_worker(0)
        cluster.kill_worker(1)
        until_executors(service, 0)
        database.execute("INSERT INTO kept SELECT i, 'v', i FROM generate_series(1, 100) i")
        until_it_says(service, f"waiting for a worker of {cluster.url}")
        assert service.stop() == 0
        assert "hung" not in service.log.read_text()
        cluster.start_worker(2)
        start(service)
        service.until_durable(database)
        assert service.stop() == 0
    assert_topics_are_the_tables_by_rule(database, kafka, topic_prefix)


@pytest.mark.soak
def test_a_connect_server_and_its_workers_that_are_killed_cost_nothing_and_are_told(
    database: Database, kafka: str, topic_prefix: str, tmp_path: Path, cluster: SparkCluster, modules: Path
) -> None:
    database.execute(SCHEMA)
    server = ConnectServer(tmp_path / "connect.log", cluster.url)
    server.start()
    try:
        where = f'remote = "{server.url}"'
        with service_on(where, database, kafka, topic_prefix, tmp_path, modules) as service:
            start(service)
            with WriteLoad(database, pause=0.02) as load:
                until_batches(service, 3)
                cluster.kill_worker(0)
                until_batches(service, 3)
                cluster.kill_worker(1)
                until_it_says(service, "waiting for an executor of the Spark Connect server")
                cluster.start_worker(2)
                until_batches(service, 3)
                server.kill()
                until_it_says(service, "does not answer")
                server.start()
                until_batches(service, 3)
                load.stop()
            service.until_durable(database)
            assert figure(service, "engine_restarts") >= 1
            assert service.stop() == 0
    finally:
        server.kill()
    assert_topics_are_the_tables_by_rule(database, kafka, topic_prefix)
