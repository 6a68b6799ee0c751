"""What is said of a cluster that lacks something; system tests show the same with real ones, where it takes longer."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from psql_streamer.embedded.ports import free_ports
from psql_streamer.spark import cluster as watched
from psql_streamer.spark.cluster import ApplicationCluster, ServerCluster
from psql_streamer.spark.executors import executors_died, find_executor_error


class Driver:
    """In place of a SparkSession: as many executors and jobs as it is told."""

    def __init__(self) -> None:
        self.levels: list[tuple[str, int]] = []
        self.executors, self.jobs, self.stopped, self.cancelled = 1, 0, False, 0
        self.sparkContext = self  # pyspark's name
        self._jsc = SimpleNamespace(sc=lambda: self)

    def isStopped(self) -> bool:  # noqa: N802 - Spark's name
        return self.stopped

    def statusTracker(self) -> Any:  # noqa: N802 - Spark's name
        infos = [SimpleNamespace(host=lambda: "h", port=lambda port=port: port) for port in range(self.executors + 1)]
        return SimpleNamespace(getExecutorInfos=lambda: infos, getActiveJobsIds=lambda: [0] * self.jobs)

    def setLogLevel(self, level: str) -> None:  # noqa: N802 - Spark's name
        self.levels.append((level, self.executors))

    def getConf(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        return {"spark.executor.memory": "2g"}

    def cancelAllJobs(self) -> None:  # noqa: N802 - Spark's name
        self.cancelled += 1


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(watched, "_WITHOUT_EXECUTORS_SECONDS", -1.0)
    monkeypatch.setattr(watched, "_REGISTER_AGAIN_SECONDS", -1.0)
    yield
    while MADE:
        MADE.pop()._let_go()


def of(driver: Driver, master: str, grows: bool = False) -> ApplicationCluster:
    session: Any = driver
    MADE.append(ApplicationCluster(session, master, grows, "OFF"))
    return MADE[-1]


MADE: list[ApplicationCluster] = []


def test_without_executors_it_waits_and_says_for_what() -> None:
    driver = Driver()
    with socket.create_server(("127.0.0.1", 0)) as server:
        master = f"spark://127.0.0.1:{server.getsockname()[1]}"
        cluster = of(driver, master)
        assert cluster.look() is None
        assert cluster.wait_for_executor(0)
        driver.executors = 0
        assert cluster.look() == f"waiting for a worker of {master} that has 2g of memory and 1 core free"
        assert not cluster.wait_for_executor(0)
        assert not cluster.lost, "it waits for its turn"
        driver.executors = 2
        assert cluster.look() is None
        assert cluster.executors == 2
        assert driver.levels == [("OFF", 1), ("OFF", 2)], "every executor is told to be silent"


def test_a_master_that_was_away_is_registered_with_again_when_its_executors_are_gone() -> None:
    driver = Driver()
    [port] = free_ports(1)
    master = f"spark://127.0.0.1:{port}"
    cluster = of(driver, master)
    with socket.create_server(("127.0.0.1", port)) as server:
        assert cluster.look() is None
        server.accept()[0].close()
    assert cluster.look() == f"the Spark master {master} does not answer, the executors that are left go on"
    driver.executors = 0
    assert cluster.look() == f"the Spark master {master} does not answer, no executor is left"
    assert not cluster.lost, "nobody is there to register with"
    with socket.create_server(("127.0.0.1", port)):
        cluster.look()
    assert cluster.lost
    assert driver.cancelled == 1


def test_an_application_that_the_cluster_ended_is_lost() -> None:
    driver = Driver()
    cluster = of(driver, "yarn")
    driver.stopped = True
    assert cluster.look() == "yarn has ended the application: another one is started"
    assert cluster.lost


def test_with_dynamic_allocation_no_executor_is_missed_before_there_is_something_to_do() -> None:
    driver = Driver()
    driver.executors = 0
    cluster = of(driver, "k8s://https://h:6443", grows=True)
    assert cluster.look() is None
    assert cluster.wait_for_executor(0)
    driver.jobs = 1
    assert cluster.look() == "waiting for an executor from k8s://https://h:6443"


def test_a_query_of_a_server_that_no_task_works_on_waits_for_an_executor() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        cluster = ServerCluster(f"sc://127.0.0.1:{server.getsockname()[1]}/;token=secret")
        stage = SimpleNamespace(num_tasks=2, num_completed_tasks=1)
        for inflight, waits in ((0, True), (1, False)):
            cluster.note_progress(operation_id="a", stages=[stage], inflight_tasks=inflight, done=False)
            told = cluster.look()
            assert (told is not None) == waits
        cluster.note_progress(operation_id="a", stages=[stage], inflight_tasks=0, done=False)
        cluster.note_progress(operation_id="a", stages=[stage], inflight_tasks=0, done=True)
        assert cluster.look() is None
    cluster._line.close()
    assert cluster.look() == f"{cluster.name} does not answer"
    assert "secret" not in cluster.name


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x\nModuleNotFoundError: No module named 'shop.rules'\n", "have no module shop.rules"),
        ('java.io.IOException: Cannot run program "/opt/python": error=2', "have no /opt/python"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version", "have another Python than the service"),
        ("ValueError: No module named 'x'", None),
    ],
)
def test_what_executors_lack_is_told_from_what_a_row_does(text: str, told: str | None) -> None:
    error = find_executor_error(Exception(text), "spark://h:7077")
    assert error is None if told is None else told in str(error)


def test_executors_that_ended_one_after_the_other_are_recognised() -> None:
    assert executors_died(Exception("Task 0 failed 4 times, most recent failure: ExecutorLostFailure (executor 3 ..."))
    assert not executors_died(Exception("Job aborted due to stage failure"))
