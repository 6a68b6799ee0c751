"""The local Spark: a JVM that lives and dies with this process, and why it ended."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING, Any

from psql_streamer.embedded.java import find_java
from psql_streamer.errors import HandlerError, HandlerRefused, HandlerUnavailable
from psql_streamer.named_files import make_absolute
from psql_streamer.redaction import redact
from psql_streamer.spark import account
from psql_streamer.spark.cluster import ApplicationCluster
from psql_streamer.spark.last_words import describe_exit, find_last_words, find_unresolved
from psql_streamer.spark.options import SparkOptions
from psql_streamer.spark.properties import write_java_options, write_properties
from psql_streamer.spark.scratch import Scratch
from psql_streamer.spark.shipping import pack
from psql_streamer.spark.stopped import is_stopped

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

_CLUSTER_SETTINGS = {
    # A standalone master gives an application every core that is free, and the next one none. As many tasks as this run
    # at once: a micro-batch is one task for each of its tables.
    "spark.cores.max": "4",
    # Executors get the level that the driver sets.
    "spark.executor.syncLogLevel.enabled": "true",
}
"""What the handler sets besides where executors are not the driver."""

_LOCAL_SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

# Micro-batches want throughput: the parallel collector costs a small batch a quarter less time than G1. The JVM does
# not start with two collectors chosen.
_BATCH_COLLECTOR = "-XX:+UseParallelGC"
# An OutOfMemoryError ends the thread that it hits. Where that is one which hands results to this process, whoever waits
# for them waits for ever; so it ends the JVM.
_END_WITHOUT_MEMORY = "-XX:+ExitOnOutOfMemoryError"
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
_CONTEXT_STOP_SECONDS = 0.75
"""A JVM that has not ended its SparkContext by then hangs, and is killed: a service that stops does not wait for much
longer, and would leave it behind, with all of its memory."""

_MEMORY = "spark.driver.memory"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_EXECUTOR_JAVA_OPTIONS = "spark.executor.extraJavaOptions"
_PYTHON = "spark.pyspark.python"
_LOG_LEVEL = "spark.log.level"
_LOG_LEVEL_UNLESS_SET = "OFF"
_DYNAMIC = "spark.dynamicAllocation.enabled"


class Jvm:
    """The JVM with the one SparkContext that pyspark allows a process. Spark's launcher starts it, in a process group
    of its own.

    Its standard input is a pipe from this process: Spark ends when that closes, also after SIGKILL. Signals of
    a terminal or an init that go to our process group do not reach it, so that a stop can finish its batch.

    fresh: nothing has run on it yet. users: how many sessions hold it. cluster: where its executors are; None if it is
    its own. shipped: what executors were given, in words.
    """

    def __init__(self, options: SparkOptions) -> None:
        self.options = options
        self.users = 0
        self.fresh = True
        self._scratch = Scratch()
        self._folder = self._scratch.path
        self._stderr = self._folder / "stderr"
        self._gateway: Any = None
        self._exchange: Path | None = None  # by files in it rows pass between pyspark and the JVM
        self.cluster: ApplicationCluster | None = None
        try:
            self.spark = self._start()
            self._exchange = Path(self.spark.sparkContext._temp_dir)
            self.shipped = self._ship()
            self._watch()
        except BaseException:
            self.stop()
            raise

    @property
    def alive(self) -> bool:
        """Whether its process runs, with Spark in it, and has its folder, and the cluster that it belongs to knows it.

        Whatever clears temporary files may remove the folder, and a JVM does not make it again.
        """
        running = self._gateway is not None and self._gateway.proc.poll() is None and not self._is_stopped()
        has_folder = self._exchange is None or self._exchange.is_dir()
        return running and has_folder and not (self.cluster is not None and self.cluster.lost)

    @property
    def memory(self) -> str:
        """The heap that it was given, as spark.driver.memory has it."""
        return self.options.conf.get(_MEMORY, SETTINGS[_MEMORY])

    def describe_end(self, seconds: float) -> str | None:
        """How it ended, and its last words; None while it runs. seconds: how long to wait for its end; 0: Spark itself
        is not asked."""
        if self._gateway is None:
            return "it is stopped"
        try:
            code = self._gateway.proc.wait(seconds)
        except TimeoutExpired:
            return "Spark was stopped in it" if seconds and self._is_stopped() else None
        words = find_last_words(self._read_stderr())
        return describe_exit(code) + (f": {redact(words)}" if words else "")

    def _is_stopped(self) -> bool:
        spark = getattr(self, "spark", None)  # it is not there while the start fails
        return spark is not None and is_stopped(spark)

    def cancel_jobs(self) -> None:
        """Make the jobs that run or wait fail."""
        with suppress(Exception):
            self.spark.sparkContext.cancelAllJobs()

    def stop(self, seconds: float = _JVM_STOP_SECONDS) -> None:
        """End it, and remove its files. seconds: how long its process may take for its end."""
        if self.cluster is not None:
            self.cluster.close()
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        # A dead JVM cannot take part in its own stop; pyspark then warns, or trips over the missing gateway.
        with self._kill_unless_it_answers(), warnings.catch_warnings(), suppress(Exception):
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
            _end(gateway, seconds)
        self._scratch.remove()

    @contextmanager
    def _kill_unless_it_answers(self) -> Iterator[None]:
        """No call of ours ends that the JVM does not answer, until its process ends. On a cluster it is let be: one
        that is slow gives back its executors, and ends by itself as soon as our end of its stdin is closed.
        """
        if self._gateway is None or self.cluster is not None:
            yield
            return
        killing = threading.Timer(_CONTEXT_STOP_SECONDS, self._gateway.proc.kill)
        killing.daemon = True
        killing.start()
        try:
            yield
        finally:
            killing.cancel()

    def _start(self) -> SparkSession:
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        launch: Callable[[SparkConf | None, dict[str, Any]], Any] = launch_gateway
        settings = self._build_settings()
        conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
        try:
            environment = _build_environment(self.options, self._submit_arguments(settings))
            with _set_environment(environment), self._stderr.open("wb") as stderr, _own_signals():
                streams = {"start_new_session": True, "stdout": stderr, "stderr": stderr}
                self._gateway = launch(None, streams)
                account.log_in(self._gateway)
                spark = SparkSession(SparkContext(conf=conf, gateway=self._gateway))
            made: Any = spark._jsparkSession
            made.sessionState()  # reads the settings of queries
            return spark
        except Exception as error:
            refused = self._explain_failed_start(error)
            _let_go(error)
            raise refused from None

    def _ship(self) -> str:
        shipment = pack(self.options, self._folder)
        shipment.to_context(self.spark)
        return shipment.told

    def _watch(self) -> None:
        master, conf = self.options.master, self.options.conf
        if not master.startswith("local"):
            grows = conf.get(_DYNAMIC, "").lower() == "true"
            self.cluster = ApplicationCluster(self.spark, master, grows, conf.get(_LOG_LEVEL, _LOG_LEVEL_UNLESS_SET))
            self.cluster.start()

    def _submit_arguments(self, settings: Mapping[str, str]) -> str:
        """What spark-submit is called with. pyspark would pass every setting on the command line, which any user of
        the machine can read; files of this folder are ours alone."""
        java_options = self._folder / "java-options"
        write_java_options(java_options, settings[JAVA_OPTIONS])
        properties = self._folder / "spark.properties"
        # The launcher of a JVM takes its options out of a file that is named with @ (java(1), "argument files").
        write_properties(properties, {**settings, JAVA_OPTIONS: f"@{java_options}"})
        given = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
        return f"--properties-file {shlex.quote(str(properties))} {given}"

    def _build_settings(self) -> dict[str, str]:
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
        else:
            settings |= _CLUSTER_SETTINGS
        if options.jars:
            settings["spark.jars"] = ",".join(str(make_absolute(Path(jar))) for jar in options.jars)
        if options.packages:
            settings["spark.jars.packages"] = ",".join(options.packages)
        settings |= options.conf
        if not options.master.startswith("local"):
            settings[_EXECUTOR_JAVA_OPTIONS] = _build_executor_java_options(settings)
        given = settings.get(JAVA_OPTIONS, "")
        java_options = [
            f"-Dlog4j2.configurationFile={self._folder}/log4j2.properties",
            # Libraries and Spark's artifacts are unpacked there; a JVM that is killed leaves them.
            f"-Djava.io.tmpdir={self._folder}",
            _END_WITHOUT_MEMORY,
            *account.list_home_options(self._folder),
            given,
        ]
        if not _COLLECTOR.search(given):
            java_options.append(_BATCH_COLLECTOR)
        return settings | {JAVA_OPTIONS: " ".join(filter(None, java_options))}

    def _explain_failed_start(self, error: Exception) -> HandlerError:
        refusal = _find_refusal(error)
        if self.alive and not self.options.master.startswith("local"):
            why = f" ({redact(refusal)})" if refusal else ""
            return HandlerUnavailable(
                f"Spark master {self.options.master} did not take the application{why}",
                "look at its log and its workers'",
            )
        missing = find_unresolved(self._read_stderr())
        if missing:
            return HandlerRefused(
                f"[spark] packages: {', '.join(missing)} is not to be had",
                "correct it, or name the repository that has it: spark.jars.repositories in [spark.conf]",
            )
        why = refusal or find_last_words(self._read_stderr()) or _find_last_line(self._read_stderr())
        what = f"Spark did not start ({type(error).__name__}{': ' + redact(why) if why else ''})"
        if not account.has_account():
            remedy = "add the user id to /etc/passwd, or correct master and conf in [spark]"
            return HandlerRefused(f"{what} for user id {os.geteuid()}, which has no account", remedy)
        return HandlerRefused(what, "correct master and conf in [spark]")

    def _read_stderr(self) -> list[str]:
        return self._stderr.read_text(errors="replace").splitlines() if self._stderr.exists() else []


def _build_executor_java_options(settings: Mapping[str, str]) -> str:
    """Executors log what a failed job says, and that quotes values of rows.

    This is log4j's level where no configuration is on an executor's class path. Spark then reads a profile of its own
    with the level INFO, unless this is another one than ERROR. The level that it has from the driver is lost then: an
    executor that is told of one before it reads the profile sets it, ever after, where nobody looks (Utils.logContext
    of Spark 4.3).
    """
    level = f"-Dlog4j2.level={settings.get(_LOG_LEVEL, _LOG_LEVEL_UNLESS_SET)}"
    return " ".join(filter(None, (level, settings.get(_EXECUTOR_JAVA_OPTIONS))))


def _let_go(error: Exception) -> None:
    """pyspark leaves the pipe of a launcher that failed to the garbage collector, which warns of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        traceback.clear_frames(error.__traceback__)


def _find_refusal(error: Exception) -> str:
    """What Spark says of its settings. It has seen no row yet, so that its own words may be shown."""
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if java is None:
        return ""
    with suppress(Exception):
        while (cause := java.getCause()) is not None and cause.getMessage():
            java = cause
        return str(java.getMessage()).strip().splitlines()[0]
    return ""


def _find_last_line(said: list[str]) -> str:
    lines = [line for line in said if line.strip() and not line.startswith(("\tat", "Using", "To "))]
    return next((line for line in lines if line.startswith("Error")), lines[-1] if lines else "")


def _end(gateway: Any, seconds: float) -> None:
    """End the JVM: close what keeps it alive, wait, and kill it if it stays."""
    with suppress(Exception):
        gateway.shutdown()
    process = gateway.proc
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(seconds)
    except TimeoutExpired:
        process.kill()
        process.wait()


def _build_environment(options: SparkOptions, submit_arguments: str) -> dict[str, str]:
    """JAVA_HOME for Spark's launcher; our Python for Python functions; no lookup of this host's name if local."""
    environment = {
        "JAVA_HOME": str(find_java().resolve().parent.parent),
        "PYSPARK_PYTHON": options.conf.get(_PYTHON) or os.environ.get("PYSPARK_PYTHON", sys.executable),
        "PYSPARK_SUBMIT_ARGS": submit_arguments,
    }
    if options.master.startswith("local"):
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    return environment


@contextmanager
def _set_environment(variables: Mapping[str, str]) -> Iterator[None]:
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
