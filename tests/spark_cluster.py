"""A standalone Spark cluster for tests, out of the jars that pyspark ships: a master and workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil

from psql_streamer.embedded.java import find_java
from psql_streamer.embedded.ports import free_ports, is_listening

_START_SECONDS = 60.0


class SparkCluster:
    """Runs while it is entered. Workers have a core each, and no PYTHONPATH of the service's."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._port = free_ports(1)[0]
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._wanted = workers

    @property
    def url(self) -> str:
        """What `master` is set to."""
        return f"spark://127.0.0.1:{self._port}"

    def start_master(self) -> None:
        """Returns when it listens; always at the same address."""
        arguments = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0"]
        self._master = self._run("master", "org.apache.spark.deploy.master.Master", arguments)
        deadline = time.monotonic() + _START_SECONDS
        while not is_listening(self._port):
            assert self._master.poll() is None, self.log("master")
            assert time.monotonic() < deadline, "the Spark master does not listen"
            time.sleep(0.05)

    def start_worker(self, number: int) -> None:
        """Returns before the master knows it."""
        arguments = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "512m"]
        arguments += ["--work-dir", str(self._folder / f"work{number}"), self.url]
        self._workers[number] = self._run(f"worker{number}", "org.apache.spark.deploy.worker.Worker", arguments)

    def kill_master(self) -> None:
        """As a crash would."""
        assert self._master is not None
        _kill(self._master)

    def kill_worker(self, number: int) -> None:
        """As a crash of its machine would, with its executors."""
        _kill(self._workers.pop(number))

    def executors(self) -> list[psutil.Process]:
        """The processes of executors."""
        return self._descendants("org.apache.spark.executor.CoarseGrainedExecutorBackend")

    def python_workers(self) -> list[psutil.Process]:
        """The Python processes of executors."""
        return self._descendants("pyspark.daemon")

    def _descendants(self, argument: str) -> list[psutil.Process]:
        return [found for worker in self._workers.values() for found in descendants(worker.pid, argument)]

    def log(self, name: str) -> str:
        """The end of what one of them wrote."""
        return (self._folder / f"{name}.log").read_text(errors="replace")[-3000:]

    def executors_wrote(self) -> str:
        """All that executors wrote to their logs."""
        return "\n".join(path.read_text(errors="replace") for path in self._folder.glob("work*/*/*/std*"))

    def __enter__(self) -> Self:
        self.start_master()
        for number in range(self._wanted):
            self.start_worker(number)
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self._master, *self._workers.values()):
            if process is not None:
                _kill(process)

    def _run(self, name: str, main: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        import pyspark

        home = Path(pyspark.__file__).parent
        given = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        # bin/load-spark-env.sh would set the version; without it, a worker looks for the folders of a build.
        own = {"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": "127.0.0.1"}
        with (self._folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [str(find_java()), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{home}/jars/*", main, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self._folder,
                env={**given, **own, "PYSPARK_PYTHON": sys.executable},
            )


def descendants(pid: int, argument: str) -> list[psutil.Process]:
    """The processes that this one started, and those that they did, with this word on their command line."""
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):  # it has ended meanwhile
            if argument in process.cmdline():
                found.append(process)
    return found


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
