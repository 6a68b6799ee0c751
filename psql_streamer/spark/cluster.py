"""What a cluster that runs the service's executors lacks: workers, the master, a Spark Connect server.

Spark itself waits for an executor without a word, for as long as it takes.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from psql_streamer.spark.addresses import Line, parse_addresses, show_addresses

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("psql_streamer.spark")

CLUSTER_LOOK_SECONDS = 1.0
"""How often a cluster is looked at."""

_WITHOUT_EXECUTORS_SECONDS = 3.0
"""The time without an executor that is worth a word: the first ones of an application take about that long."""

_REGISTER_AGAIN_SECONDS = 10.0
"""A master that was away gets this long to give executors again: one that recovers its state from disk does so within
seconds. Of any other the application is forgotten."""


class Cluster(ABC):
    """Looks at a cluster, in a thread of its own, until it is closed.

    missing: what is away, in words; None when nothing is. executors: how many there are; None if that is not known.
    lost: the application will get no executor any more; another one must be registered. Its jobs were cancelled.
    """

    def __init__(self) -> None:
        self.missing: str | None = None
        self.lost = False
        self.executors: int | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spark cluster", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Look no more. Does not wait: the look may be at an engine that hangs."""
        self._closed.set()

    @property
    @abstractmethod
    def name(self) -> str:
        """What messages call it."""

    @abstractmethod
    def look(self) -> str | None:
        """What is missing now."""

    def _run(self) -> None:
        while not self._closed.wait(CLUSTER_LOOK_SECONDS):
            missing = None
            with suppress(Exception):  # an engine that ended cannot be asked; its session says so
                missing = self.look()
            if not self._closed.is_set():
                self._tell(missing)
        self._let_go()

    def _tell(self, missing: str | None) -> None:
        before, self.missing = self.missing, missing
        if missing is not None and missing != before:
            log.warning("%s", missing)
        elif missing is None and before is not None:
            log.info("%s: nothing is missing any more", self.name)

    def _let_go(self) -> None:
        """Called at the end, in its thread."""


class ApplicationCluster(Cluster):
    """Of an application whose driver is the service's JVM."""

    def __init__(self, spark: SparkSession, master: str, grows: bool, log_level: str) -> None:
        """grows: whether having no executor is well while there is nothing to do (dynamic allocation).

        log_level: of executors. Spark gives it to those that are there, not to those that come later.
        """
        super().__init__()
        self._context: Any = spark.sparkContext
        self._master = master
        self._grows = grows
        self._log_level = log_level
        self._known: set[str] = set()
        self._line = Line(parse_addresses(master)) if parse_addresses(master) else None
        self._since: float | None = None
        self._given = threading.Event()

    @property
    def name(self) -> str:
        """See Cluster."""
        return self._master

    def look(self) -> str | None:
        """See Cluster. Notes as well whether the application is lost."""
        if self._context._jsc.sc().isStopped():
            self._lose("the application was ended by the cluster")
            return f"{self._master} has ended the application: another one is started"
        self._count_executors()
        answers = self._line is None or self._line.holds()
        if not answers:
            rest = "no executor is left" if self.executors == 0 else "the executors that are left go on"
            return f"the Spark master {self._master} does not answer, {rest}"
        if self._line is not None and self._line.broken and self._is_alone_for(_REGISTER_AGAIN_SECONDS):
            self._lose("its master was started again, and knows nothing of the application")
        return self._describe_wait() if self._is_alone_for(_WITHOUT_EXECUTORS_SECONDS) else None

    def wait_for_executor(self, seconds: float) -> bool:
        """Whether there is one within this time, or none is needed before there is something to do."""
        return self._grows or self._given.wait(seconds)

    def cancel_jobs(self) -> None:
        """Make all jobs that run or wait fail."""
        self._context.cancelAllJobs()

    def _count_executors(self) -> None:
        infos = self._context._jsc.sc().statusTracker().getExecutorInfos()
        there = {f"{info.host()}:{info.port()}" for info in infos}
        if there - self._known:
            # Where they have a log4j configuration of their own, its level counts until then.
            self._context.setLogLevel(self._log_level)
        before, self.executors, self._known = self.executors, len(there) - 1, there  # the driver is one of them
        if before is not None and self.executors != before:
            log.info("%s: %d executors, %d before", self._master, self.executors, before)
        self._given.set() if self.executors else self._given.clear()
        wanted = not self._grows or len(self._context.statusTracker().getActiveJobsIds())
        if self.executors or not wanted:
            self._since = None
        elif self._since is None:
            self._since = time.monotonic()

    def _is_alone_for(self, seconds: float) -> bool:
        """Whether there has been no executor for longer than this."""
        return self._since is not None and time.monotonic() - self._since > seconds

    def _describe_wait(self) -> str:
        conf = self._context.getConf()
        memory, cores = conf.get("spark.executor.memory", "1g"), conf.get("spark.executor.cores", "1")
        if self._line is None:
            return f"waiting for an executor from {self._master}"
        return f"waiting for a worker of {self._master} that has {memory} of memory and {cores} core free"

    def _lose(self, why: str) -> None:
        if not self.lost:
            self.lost = True
            log.warning("%s: %s: it is registered again", self._master, why)
            with suppress(Exception):
                self.cancel_jobs()

    def _let_go(self) -> None:
        if self._line is not None:
            self._line.close()


class ServerCluster(Cluster):
    """Of a Spark Connect server: whether it answers, and whether jobs get on."""

    def __init__(self, url: str) -> None:
        super().__init__()
        addresses = parse_addresses(url)
        self._line = Line(addresses)
        self._shown = show_addresses(addresses)
        self._waits: dict[str, float] = {}
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """See Cluster."""
        return f"the Spark Connect server {self._shown}"

    def look(self) -> str | None:
        """See Cluster."""
        if not self._line.holds():
            return f"{self.name} does not answer"
        with self._lock:
            since = min(self._waits.values(), default=None)
        if since is not None and time.monotonic() - since > _WITHOUT_EXECUTORS_SECONDS:
            return f"waiting for an executor of {self.name}"
        return None

    def note_progress(self, *, operation_id: str, stages: Any, inflight_tasks: int, done: bool) -> None:
        """A handler for SparkSession.registerProgressHandler, called every two seconds of a query.

        Tasks that are to do, and none at work: Spark waits for an executor.
        """
        left = sum(stage.num_tasks - stage.num_completed_tasks for stage in stages)
        with self._lock:
            if done or inflight_tasks or not left:
                self._waits.pop(operation_id, None)
            else:
                self._waits.setdefault(operation_id, time.monotonic())

    def _let_go(self) -> None:
        self._line.close()
