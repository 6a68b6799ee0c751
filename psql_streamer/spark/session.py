"""The Spark session: a local JVM that lives and dies with this process, or a Spark Connect server.

pyspark allows one SparkContext a process. All handlers share it, each in a session of its own, so that their
views do not meet.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING, Any

from psql_streamer.embedded.java import find_java, install_line
from psql_streamer.errors import HandlerError, HandlerRefused, HandlerUnavailable, StreamerError
from psql_streamer.spark.options import SparkOptions
from psql_streamer.spark.scratch import Scratch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: dict[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    # Small jobs, many of them: no replanning between stages, few partitions, no pages about past jobs.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "1",
    "spark.ui.retainedStages": "1",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "1",
    # Rows are unpacked by the tasks, not on the driver before the job starts: twice as fast from 10,000 rows on.
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    # A micro-batch is one Arrow record batch, and so one task: half of a small batch's time is spent per task.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",
    "spark.driver.memory": "1g",
}
"""What the handler sets; the user's conf wins."""

_LOCAL_SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

# Micro-batches want throughput: the parallel collector costs a small batch a quarter less time than G1. The JVM does
# not start with two collectors chosen.
_BATCH_COLLECTOR = "-XX:+UseParallelGC"
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")

# Spark's own log holds values of rows (a failed cast quotes them), and a log must not.
_LOG4J = """\
rootLogger.level = off
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %c: %m%n
"""

_JVM_STOP_SECONDS = 10


class Session:
    """A handler's session: `start` gives it, `alive` says whether the engine is there, `stop` lets it go."""

    def __init__(self, options: SparkOptions) -> None:
        self._options = options
        self._spark: SparkSession | None = None
        self._jvm: _Jvm | None = None

    def start(self) -> SparkSession:
        """A session on a living engine; a new engine when there is none, or the last one died.

        Raises HandlerRefused without Java or with settings that Spark does not take, HandlerUnavailable when a
        Spark Connect server or a master does not answer.
        """
        if self._spark is not None and self.alive:
            return self._spark
        self.stop()
        _silence_query_log()
        if self._options.remote is not None:
            self._spark = _connect(self._options.remote, self._options.conf)
        else:
            self._jvm = _acquire(self._options)
            self._spark = self._jvm.spark.newSession()
        return self._spark

    @property
    def alive(self) -> bool:
        """Whether the local JVM runs. Of a Spark Connect server nothing is known before it is asked."""
        return self._jvm is None or self._jvm.alive

    def stop(self) -> None:
        """Let the session go; the last one of the process ends the JVM."""
        spark, self._spark = self._spark, None
        jvm, self._jvm = self._jvm, None
        if jvm is not None:
            _release(jvm)
        elif spark is not None:
            os.environ.pop(_CONNECT_MODE, None)
            # A server that is gone needs no goodbye.
            with suppress(Exception):
                spark.stop()


def java_problem() -> tuple[str, str] | None:
    """What keeps a local Spark from starting, and the line that mends it; None when nothing does."""
    try:
        find_java()
    except StreamerError as error:
        return f"Spark needs Java: {error.what}", error.remedy or install_line()
    return None


def _silence_query_log() -> None:
    """pyspark logs every failed query to stderr, whole, with the values that its message quotes."""
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True


# --- the local engine


class _Jvm:
    """The JVM with the one SparkContext. Spark's launcher starts it, in a process group of its own.

    Its standard input is a pipe from this process: Spark ends when that closes, also after SIGKILL. Signals of
    a terminal or an init that go to our process group do not reach it, so that a stop can finish its batch.
    """

    def __init__(self, options: SparkOptions) -> None:
        self.options = options
        self.users = 0
        self._scratch = Scratch()
        self._folder = self._scratch.path
        self._stderr = self._folder / "stderr"
        self._gateway: Any = None
        try:
            self.spark = self._start()
        except BaseException:
            self.stop()
            raise

    @property
    def alive(self) -> bool:
        return self._gateway is not None and self._gateway.proc.poll() is None

    def stop(self) -> None:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        # A dead JVM cannot take part in its own stop; pyspark then warns, or trips over the missing gateway.
        with warnings.catch_warnings(), suppress(Exception):
            warnings.simplefilter("ignore")
            context = SparkContext._active_spark_context
            if context is not None:
                context.stop()
        SparkSession._instantiatedSession = None
        SparkSession._activeSession = None
        with SparkContext._lock:
            SparkContext._active_spark_context = None
            gateway, self._gateway = self._gateway, None
            SparkContext._gateway = None
            SparkContext._jvm = None
        if gateway is not None:
            _end(gateway)
        self._scratch.remove()

    def _start(self) -> SparkSession:
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        launch: Callable[[SparkConf, dict[str, Any]], Any] = launch_gateway
        conf = SparkConf(loadDefaults=False).setAll(list(self._settings().items()))
        try:
            with _environment(_jvm_environment(self.options)), self._stderr.open("wb") as stderr, _own_signals():
                streams = {"start_new_session": True, "stdout": stderr, "stderr": stderr}
                self._gateway = launch(conf, streams)
                return SparkSession(SparkContext(conf=conf, gateway=self._gateway))
        except Exception as error:
            raise self._not_started(error) from None

    def _settings(self) -> dict[str, str]:
        options = self.options
        (self._folder / "log4j2.properties").write_text(_LOG4J)
        settings = SETTINGS | {
            "spark.master": options.master,
            "spark.app.name": options.app_name,
            "spark.local.dir": str(self._folder),
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
            # Where pandas is missing pyspark falls back to this, with a warning for every function.
            "spark.sql.execution.pythonUDF.arrow.enabled": str(find_spec("pandas") is not None).lower(),
        }
        if options.master.startswith("local"):
            settings |= _LOCAL_SETTINGS
            if "PYSPARK_PYTHON" not in os.environ:  # another Python may not have us
                settings["spark.python.daemon.module"] = "psql_streamer.spark.daemon"
        settings |= options.conf
        given = settings.get("spark.driver.extraJavaOptions", "")
        java_options = [f"-Dlog4j2.configurationFile={self._folder}/log4j2.properties", given]
        if not _COLLECTOR.search(given):
            java_options.append(_BATCH_COLLECTOR)
        return settings | {"spark.driver.extraJavaOptions": " ".join(filter(None, java_options))}

    def _not_started(self, error: Exception) -> HandlerError:
        said = self._stderr.read_text(errors="replace").strip().splitlines() if self._stderr.exists() else []
        why = next((line for line in reversed(said) if line and not line.startswith(("\tat", "Using"))), "")
        if self.alive and not self.options.master.startswith("local"):
            return HandlerUnavailable(f"Spark master {self.options.master} did not take the application")
        what = f"Spark did not start ({type(error).__name__}{': ' + why if why else ''})"
        return HandlerRefused(what, "correct master and conf in [spark]")


_lock = threading.Lock()
_shared: _Jvm | None = None


def _acquire(options: SparkOptions) -> _Jvm:
    global _shared
    with _lock:
        if _shared is not None and not _shared.alive:
            _shared.stop()
            _shared = None
        if _shared is None:
            problem = java_problem()
            if problem is not None:
                raise HandlerRefused(*problem)
            _shared = _Jvm(options)
        elif (_shared.options.master, _shared.options.conf) != (options.master, options.conf):
            raise HandlerRefused(
                "two Spark handlers ask for different masters or settings", "give them one [spark] section"
            )
        _shared.users += 1
        return _shared


def _release(jvm: _Jvm) -> None:
    global _shared
    with _lock:
        jvm.users -= 1
        if jvm.users == 0 and jvm is _shared:
            _shared = None
            jvm.stop()


def _end(gateway: Any) -> None:
    """End the JVM: close what keeps it alive, wait, and kill it if it stays."""
    with suppress(Exception):
        gateway.shutdown()
    process = gateway.proc
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(_JVM_STOP_SECONDS)
    except TimeoutExpired:
        process.kill()
        process.wait()


def _jvm_environment(options: SparkOptions) -> dict[str, str]:
    """JAVA_HOME for Spark's launcher; our Python for Python functions; no lookup of this host's name if local."""
    environment = {"JAVA_HOME": str(find_java().resolve().parent.parent)}
    environment["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON", sys.executable)
    if options.master.startswith("local"):
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    return environment


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep our SIGINT handler: a SparkContext made in the main thread puts its own in its place.

    The launcher's preexec_fn makes Python 3.12 and later warn about a fork with threads; it only ignores SIGINT.
    """
    with ExitStack() as stack:
        if threading.current_thread() is threading.main_thread():
            stack.callback(signal.signal, signal.SIGINT, signal.getsignal(signal.SIGINT))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


# --- Spark Connect

_CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
"""What tells pyspark.sql.functions, which a rule's function uses, that there is no JVM here."""


def _connect(url: str, conf: Mapping[str, str]) -> SparkSession:
    try:
        from pyspark.sql.connect.session import SparkSession as RemoteSession
    except ImportError as error:
        raise HandlerRefused(
            f"[spark] remote needs a package that is not installed ({error})", "pip install 'pyspark[connect]'"
        ) from None
    builder: Any = RemoteSession.builder.remote(url)
    for key, value in {"spark.sql.session.timeZone": "UTC", **conf}.items():
        builder.config(key, value)
    try:
        session: SparkSession = builder.create()
        # The first call that the server has to answer.
        _ = session.version
    except Exception as error:
        raise HandlerUnavailable(
            f"the Spark Connect server of [spark] remote does not answer ({type(error).__name__})",
            "start it, or correct the address",
        ) from None
    os.environ[_CONNECT_MODE] = "1"
    return session
