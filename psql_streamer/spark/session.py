"""The Spark session: on a local JVM, which all handlers of the process share, or on a Spark Connect server.

pyspark allows one SparkContext a process. All handlers share it, each in a session of its own, so that their
views do not meet.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from psql_streamer.embedded.java import find_java, install_line
from psql_streamer.errors import HandlerRefused, HandlerUnavailable, StreamerError
from psql_streamer.spark.addresses import Line, parse_addresses
from psql_streamer.spark.cluster import Cluster, ServerCluster
from psql_streamer.spark.connect import clone_session, connect, disconnect, ship
from psql_streamer.spark.jvm import Jvm
from psql_streamer.spark.options import SparkOptions
from psql_streamer.spark.scratch import Scratch, explain_unmade
from psql_streamer.spark.shipping import pack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_EXECUTOR_SECONDS = 8.0
"""The time that a start waits for an executor; whoever starts a handler tries again."""


class Session:
    """A handler's session: `start` gives it, `alive` says whether the engine is there, `stop` lets it go.

    starts: how many engines there were. shipped: what executors were given, in words.
    """

    def __init__(self, options: SparkOptions) -> None:
        self._options = options
        self._spark: SparkSession | None = None
        self._jvm: Jvm | None = None
        self._server: ServerCluster | None = None
        self._remote_sessions: list[SparkSession] = []
        self._doubted = False
        self.starts = 0
        self.shipped = ""

    def start(self) -> SparkSession:
        """A session on a living engine; a new engine when there is none, or the last one died.

        Raises HandlerRefused without pyspark or Java, or with settings that Spark does not take, HandlerUnavailable
        when a Spark Connect server or a master does not answer, no worker gives an executor, or a JVM cannot be started
        again.
        """
        if self._spark is not None and self.alive:
            self._await_executor()
            return self._spark
        self.stop()
        problem = find_pyspark_problem()
        if problem is not None:
            raise HandlerRefused(*problem)
        _silence_what_quotes_values()
        if self._options.remote is not None:
            self._spark = self._connect_to_server(self._options.remote)
        else:
            self._jvm = _acquire(self._options)
            self.shipped = self._jvm.shipped
            self._spark = self._jvm.spark.newSession()
        self.starts += 1
        self._await_executor()
        return self._spark

    @property
    def alive(self) -> bool:
        """Whether the engine is there: the JVM runs, and the cluster knows it; a Spark Connect server has not failed
        since the session began."""
        return self._jvm.alive if self._jvm is not None else not self._doubted

    @property
    def cluster(self) -> Cluster | None:
        """What is known of the cluster; None for a local engine."""
        return self._jvm.cluster if self._jvm is not None else self._server

    def make_another(self) -> SparkSession:
        """One more session like that which was started, with other views. For the time until `stop`."""
        spark, server = self._spark, self._server
        if spark is None:
            raise HandlerUnavailable("the Spark session has ended", "it is started again")
        if server is None:
            return spark.newSession()
        made = clone_session(spark)
        self._watch_progress(made, server)
        return made

    def cancel_jobs(self) -> None:
        """Make the jobs that run or wait fail: of the application, or of the sessions on a Spark Connect server."""
        if self._jvm is not None:
            self._jvm.cancel_jobs()
        for session in self._remote_sessions:
            with suppress(Exception):
                session.interruptAll()

    def take_fresh(self) -> bool:
        """Whether nothing has run on the engine yet; true once."""
        if self._jvm is None:
            return self.starts == 1
        fresh, self._jvm.fresh = self._jvm.fresh, False
        return fresh

    def doubt(self) -> None:
        """A job failed for no reason of its own: a Spark Connect server that restarted does not know the session."""
        self._doubted = True

    def describe_end(self, seconds: float) -> str | None:
        """How the local JVM ended; None while it runs, and of a Spark Connect server."""
        return None if self._jvm is None else self._jvm.describe_end(seconds)

    @property
    def memory(self) -> str | None:
        """The heap of the local JVM, as spark.driver.memory has it."""
        return None if self._jvm is None else self._jvm.memory

    def stop(self) -> None:
        """Let the session go; the last one of the process ends the JVM."""
        spark, self._spark = self._spark, None
        jvm, self._jvm = self._jvm, None
        doubted, self._doubted = self._doubted, False
        server, self._server = self._server, None
        if server is not None:
            server.close()
        if jvm is not None:
            _release(jvm)
        elif spark is not None:
            for session in self._remote_sessions:
                disconnect(session, answers=not doubted)
            self._remote_sessions.clear()

    def _connect_to_server(self, remote: str) -> SparkSession:
        """A session on a Spark Connect server, with what is shipped to it."""
        scratch = Scratch()
        try:
            spark = connect(remote, self._options.conf)
            try:
                shipment = pack(self._options, scratch.path)
                ship(spark, shipment)
            except BaseException:
                disconnect(spark, answers=True)
                raise
        finally:
            scratch.remove()
        self.shipped = shipment.told
        self._server = ServerCluster(remote)
        self._server.start()
        self._watch_progress(spark, self._server)
        return spark

    def _watch_progress(self, session: SparkSession, server: ServerCluster) -> None:
        self._remote_sessions.append(session)
        note: Any = server.note_progress
        session.registerProgressHandler(note)

    def _await_executor(self) -> None:
        cluster = self._jvm.cluster if self._jvm is not None else None
        if cluster is not None and not cluster.wait_for_executor(_EXECUTOR_SECONDS):
            raise HandlerUnavailable(cluster.missing or f"waiting for an executor from {cluster.name}")


def find_pyspark_problem() -> tuple[str, str] | None:
    """What to say where pyspark is missing; None where it is there."""
    if find_spec("pyspark") is not None:
        return None
    return "the Spark handler needs pyspark, which is not installed", "pip install 'pyspark>=4,<5'"


def find_java_problem() -> tuple[str, str] | None:
    """What keeps a local Spark from starting, and the line that mends it; None when nothing does."""
    try:
        find_java()
    except StreamerError as error:
        return f"Spark needs Java: {error.what}", error.remedy or install_line()
    return None


def _silence_what_quotes_values() -> None:
    """pyspark logs every failed query whole, and py4j every lost connection with the exceptions before it: both quote
    values of rows. What is to be told of them is in the errors that are raised.
    """
    from pyspark import accumulators
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    # py4j logs this on the root logger itself.
    logging.getLogger().addFilter(_is_not_of_py4j)
    # What collects figures of Python functions prints a traceback on stderr when the JVM has ended.
    for name in ("AccumulatorTCPServer", "AccumulatorUnixServer"):
        server = getattr(accumulators, name, None)
        if server is not None:
            server.handle_error = _say_nothing


def _say_nothing(*_: object) -> None:
    """In place of a method that prints."""


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "/py4j/" not in record.pathname


_lock = threading.Lock()
_shared: Jvm | None = None
_proven: object = None
"""The settings with which a JVM has started."""


def _acquire(options: SparkOptions) -> Jvm:
    global _shared
    with _lock:
        if _shared is not None and not _shared.alive:
            _shared.stop()
            _shared = None
        if _shared is None:
            _shared = _start_jvm(options)
        elif (_shared.options.master, _shared.options.conf) != (options.master, options.conf):
            raise HandlerRefused(
                "two Spark handlers ask for different masters or settings", "give them one [spark] section"
            )
        _shared.users += 1
        return _shared


def _start_jvm(options: SparkOptions) -> Jvm:
    """A new JVM. Where one has run with the same settings, it may be the machine's state that keeps another from it."""
    global _proven
    settings = (options.master, options.conf)
    _refuse_without_master(options.master)
    try:
        problem = find_java_problem()
        if problem is not None:
            raise HandlerRefused(*problem)
        jvm = Jvm(options)
    except OSError as error:
        raise explain_unmade(error) from None
    except HandlerRefused as error:
        if settings != _proven:
            raise
        raise HandlerUnavailable(f"the Spark JVM cannot be started again: {error.what}", "it is tried again") from None
    _proven = settings
    return jvm


def _refuse_without_master(master: str) -> None:
    """Spark itself tries for a minute, and does not say to whom it speaks."""
    addresses = parse_addresses(master)
    line = Line(addresses)
    if addresses and not line.holds():
        raise HandlerUnavailable(f"the Spark master {master} does not answer", "start it, or correct master in [spark]")
    line.close()


def _release(jvm: Jvm) -> None:
    global _shared
    with _lock:
        jvm.users -= 1
        if jvm.users == 0 and jvm is _shared:
            _shared = None
            jvm.stop()
