"""The engine behind the Spark handler: started, killed, started again."""

from __future__ import annotations

import errno
import os
import re
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

import pytest

from psql_streamer.errors import HandlerError, HandlerRefused, StreamerError
from psql_streamer.interfaces import Status
from psql_streamer.spark import handler as handler_module
from psql_streamer.spark.handler import SparkHandler
from psql_streamer.spark.last_words import describe_exit, find_last_words
from psql_streamer.spark.options import SparkOptions
from tests.source_at_work import wait_for
from tests.spark_changes import EVERY, INSERT, batch, changes, only, shop, values


def test_the_sigint_handler_of_the_service_is_still_its_own(engine: SparkHandler) -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_spark_connect_without_its_packages_names_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql.connect.session", None)
    with pytest.raises(HandlerRefused, match=r"pip install 'pyspark\[connect\]'"):
        SparkHandler("spark", SparkOptions(remote="sc://localhost:15002", tables=EVERY)).start()


def test_two_masters_in_one_process_are_refused(engine: SparkHandler) -> None:
    with pytest.raises(HandlerRefused, match="give them one"):
        SparkHandler("spark", SparkOptions(master="local[1]", tables=EVERY)).start()


def test_no_java_is_a_finding_with_an_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing() -> Path:
        raise StreamerError("no Java 17 or later found", "install one: apt-get install openjdk-17-jre-headless")

    monkeypatch.setattr("psql_streamer.spark.session.find_java", nothing)
    (finding,) = SparkHandler("spark", SparkOptions(tables=EVERY)).check()
    assert str(finding) == (
        "error: Spark needs Java: no Java 17 or later found: install one: apt-get install openjdk-17-jre-headless"
    )


def test_pyspark_that_is_not_installed_is_a_finding_and_refused_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psql_streamer.spark.session.find_spec", lambda _: None)
    handler = SparkHandler("spark", SparkOptions(tables=EVERY))
    told = "the Spark handler needs pyspark, which is not installed: pip install 'pyspark>=4,<5'"
    assert [str(finding) for finding in handler.check()] == [f"error: {told}"]
    with pytest.raises(HandlerRefused) as refused:
        handler.start()
    assert str(refused.value) == told


@pytest.mark.parametrize(
    ("code", "said", "told"),
    [
        (52, ["Setting default log level"], "exit code 52, out of memory"),
        (1, ['Exception in thread "main" a.b.CException: secret'], "exit code 1: a.b.CException"),
        (
            3,
            ["java.lang.OutOfMemoryError: Java heap space", "\tat a.b.C"],
            "java.lang.OutOfMemoryError: Java heap space",
        ),
        (-6, ["#  SIGSEGV (0xb) at pc=0x0", "# /tmp/hs_err_pid12.log"], "SIGABRT, it crashed: /tmp/hs_err_pid12.log"),
        (-9, [], "SIGKILL, as the kernel sends it when memory runs out"),
    ],
)
def test_the_end_of_a_jvm_is_told_by_its_exit_code_and_its_last_words(code: int, said: list[str], told: str) -> None:
    last = find_last_words(said)
    assert (describe_exit(code) + (f": {last}" if last else "")).endswith(told)


def test_without_rules_there_is_no_engine_and_batches_come_back_as_they_are(engine: SparkHandler) -> None:
    handler = SparkHandler("spark", SparkOptions(master="local[1]"))  # another engine would be refused
    assert list(handler.check()) == []
    handler.start()
    given = batch(shop())
    assert handler.handle(given) is given
    assert handler.status() == Status(
        True, "no rules in [spark.tables]: nothing goes through Spark, and none is started"
    )
    handler.stop()


def test_a_table_that_no_rule_fits_does_not_go_to_spark(spark: Any) -> None:
    handler = spark(orders={"sql": "SELECT id FROM changes"})
    others = changes([INSERT], {0: [b"1", None, None, None]}, {}, table="others")
    result = handler.handle(batch(others, shop()))
    parts = {part.relation.table: part for part in result.changes}
    assert parts["others"].columns == others.columns
    assert [column.to_pylist() for column in parts["others"].after.columns] == [[b"1"], [None], [None], [None]]
    assert [column.name for column in parts["orders"].columns] == ["id"]
    assert handler.stats()["rows"] == 4
    alone = batch(others)
    assert handler.handle(alone) is alone
    assert handler.stats()["batches"] == 1


_LET_GO = threading.Event()


def waits(df: Any) -> Any:
    """A function that takes as long as the test wants."""
    assert _LET_GO.wait(30)
    return df


def test_the_status_names_the_rows_that_are_in_spark_for_long(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler_module, "_SLOW_SECONDS", 0.1)
    _LET_GO.clear()
    handler = spark(orders={"function": f"{__name__}:waits"})
    running = threading.Thread(target=handler.handle, args=(batch(shop()),))
    running.start()
    try:
        wait_for(lambda: "4 rows of public.orders have been in Spark for" in handler.status().reason, "it to be told")
        assert ", now public.orders, rule 'orders', for 0 s" in handler.status().reason
        assert handler.status().ok, "it may be a slow rule"
        monkeypatch.setattr(handler_module, "_HANGING_SECONDS", 0.1)
        assert not handler.status().ok
    finally:
        _LET_GO.set()
        running.join()
    assert "have been in Spark" not in handler.status().reason


def test_the_status_tells_the_engine_the_last_batch_and_why_one_failed(spark: Any) -> None:
    handler = spark(orders={"sql": "SELECT * FROM changes"}, bad={"coerce": {"customer": "int"}})
    assert handler.status() == Status(True, f"Spark {version('pyspark')} on local[2], nothing has gone through it yet")
    others = changes([INSERT], {0: [b"1", None, b"no number", None]}, {}, table="bad")
    handler.handle(batch(shop()))
    assert handler.status().ok
    assert re.search(r"on local\[2\], last batch: 4 rows of public\.orders in \d+ ms", handler.status().reason)
    with pytest.raises(HandlerRefused) as refused:
        handler.handle(batch(others))
    assert handler.status() == Status(False, str(refused.value))
    handler.handle(batch(shop()))
    assert handler.status().ok
    assert handler.stats() == {
        "batches": 2, "rows": 8, "passed_unknown": 0, "unaddressed": 0, "fields_left_out": 0, "nulled": 0,
            "dead_lettered": 0, "engine_restarts": 0,
    }  # fmt: skip


SECRET = "hunter2 : = \\ ü"
SCRIPT = textwrap.dedent(f"""
    import sys
    from psql_streamer.spark.session import Session
    from psql_streamer.spark.options import SparkOptions
    secret = {SECRET!r}
    conf = {{"spark.hadoop.fs.s3a.secret.key": secret, "spark.driver.extraJavaOptions": "-Dpassword='hunter2 x'"}}
    session = Session(SparkOptions(master="local[1]", conf=conf))
    spark = session.start()
    print(session._jvm._gateway.proc.pid, session._jvm._folder, flush=True)
    arrived = spark._jvm.System.getProperty("password")
    print(spark.sparkContext.getConf().get("spark.hadoop.fs.s3a.secret.key") == secret, arrived, flush=True)
    sys.stdin.read()
    session.stop()
""")


@pytest.mark.slow
def test_the_jvm_shows_no_setting_survives_signals_to_our_group_and_dies_with_us(tmp_path: Path) -> None:
    with CommandLines() as shown:
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )  # fmt: skip
        assert process.stdout is not None
        jvm, folder = process.stdout.readline().split()
    assert process.stdout.readline() == "True hunter2 x\n"
    assert shown.with_word("org.apache.spark.deploy.SparkSubmit")
    assert [line for line in shown.with_word("hunter2") if SCRIPT not in line] == []
    for name in ("spark.properties", "java-options"):
        assert stat.S_IMODE((Path(folder) / name).stat().st_mode) == 0o600
    assert os.getpgid(int(jvm)) != os.getpgid(process.pid)
    process.kill()
    process.communicate()
    wait_for_end(int(jvm))


class CommandLines:
    """All command lines of the machine while it is entered, as any user can read them."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def with_word(self, word: str) -> list[str]:
        return [line for line in self._seen if word in line]

    def _look(self) -> None:
        while not self._done.wait(0.01):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    self._seen.add(path.read_text(errors="replace").replace("\0", " "))


def run_apart(function: Callable[[], None]) -> subprocess.CompletedProcess[str]:
    """Run a function of this module in a process of its own: the JVM of this one is shared by all tests."""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import {__name__} as t; t.{function.__name__}()"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result


@pytest.mark.slow
def test_a_killed_jvm_is_unavailable_and_tried_again_until_one_starts() -> None:
    result = run_apart(kill_and_start_again)
    assert result.stderr == ""
    settings, killed, not_again, restarted = result.stdout.splitlines()
    assert settings.startswith("HandlerRefused: Spark did not start")
    assert "Insufficient driver memory" in settings
    assert killed == (
        "HandlerUnavailable: the Spark JVM ended (SIGKILL, as the kernel sends it when memory runs out): "
        "it is started again"
    )
    assert not_again.startswith("HandlerUnavailable: the Spark JVM cannot be started again")
    assert restarted == "works again: [b'nna', b'bob', b'nad'], 1 restart"


MADE_AT_IMPORT = """
from pyspark.sql import functions as f

reverse = f.udf(lambda text: text and text[::-1], "string")


def shout(df):
    return df.withColumn("customer", reverse("customer"))
"""


def kill_and_start_again() -> None:
    """To be run apart."""
    small = SparkOptions(master="local[1]", tables=EVERY, conf={"spark.driver.memory": "100m"})
    show_failure(SparkHandler("spark", small).start)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "made_at_import.py").write_text(MADE_AT_IMPORT)
        rules = {"*": {"function": "made_at_import:shout"}}
        kill_between_batches(SparkOptions(master="local[1]", tables=rules, pyFiles=[folder]))


def kill_between_batches(options: SparkOptions) -> None:
    handler = SparkHandler("spark", options)
    handler.start()
    handler.handle(batch(shop()))
    jvm: Any = handler._session._jvm
    jvm._gateway.proc.kill()
    jvm._gateway.proc.wait()
    show_failure(lambda: handler.handle(batch(shop())))
    with patch("psql_streamer.spark.session.find_java", side_effect=StreamerError("no Java 17 or later found")):
        show_failure(handler.start)
    handler.start()
    rows = values(only(handler.handle(batch(shop()))), "customer")
    print(f"works again: {rows}, {handler.stats()['engine_restarts']} restart")
    handler.stop()


def show_failure(call: Callable[[], object]) -> None:
    try:
        call()
    except HandlerError as error:
        print(f"{type(error).__name__}: {error}", flush=True)


@pytest.mark.soak
def test_spark_is_started_again_where_its_folder_was_removed() -> None:
    result = run_apart(remove_folder_between_batches)
    removed, full, restarted = result.stdout.splitlines()
    assert re.search(r"cannot be written in \S+: No such file or directory: Spark is started again", removed)
    assert full.startswith("HandlerUnavailable: Spark cannot be started: its files cannot be made in ")
    assert restarted == "works again: [b'1', b'2', b'4'], 1 restart"


def remove_folder_between_batches() -> None:
    """To be run apart."""
    handler = SparkHandler(
        "spark", SparkOptions(master="local[1]", tables={"*": {"sql": "SELECT *, 1 AS x FROM changes"}})
    )
    handler.start()
    handler.handle(batch(shop()))
    jvm: Any = handler._session._jvm
    shutil.rmtree(jvm._scratch.path)
    show_failure(lambda: handler.handle(batch(shop())))
    with patch.object(Path, "write_text", side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))):
        show_failure(lambda: handler.handle(batch(shop())))
    rows = values(only(handler.handle(batch(shop()))), "id")
    print(f"works again: {rows}, {handler.stats()['engine_restarts']} restart")
    handler.stop()


@pytest.mark.slow
def test_a_jvm_that_hangs_ends_with_the_service() -> None:
    assert run_apart(stop_beside_a_jvm_that_hangs).stdout == "ended by -9\n"


def stop_beside_a_jvm_that_hangs() -> None:
    """To be run apart."""
    handler = SparkHandler("spark", SparkOptions(master="local[1]", tables=EVERY))
    handler.start_cold()
    jvm: Any = handler._session._jvm
    process = jvm._gateway.proc
    process.send_signal(signal.SIGSTOP)
    handler.stop()
    print(f"ended by {process.poll()}")


def wait_for_end(pid: int) -> None:
    """Returns when the process is gone; the test's timeout is the limit."""
    descriptor = os.pidfd_open(pid)
    try:
        select.select([descriptor], [], [])
    finally:
        os.close(descriptor)
