"""A Spark Connect server for tests, out of the jars that pyspark ships."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from psql_streamer.embedded.java import find_java
from psql_streamer.embedded.ports import free_ports

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_START_SECONDS = 60.0


class ConnectServer:
    """Runs while it is entered; `kill` and `start` again keep its address."""

    def __init__(self, log: Path, master: str = "local[2]") -> None:
        self._master = master
        self._port = free_ports(1)[0]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """What `remote` is set to."""
        return f"sc://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Returns when it answers."""
        import pyspark

        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.ui.enabled": "false",
            "spark.local.dir": str(self._log.parent),
            "spark.sql.warehouse.dir": str(self._log.parent / "warehouse"),
        }
        submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
        command = [str(submit), "--master", self._master, "--class", _CLASS]
        command += [text for key, value in settings.items() for text in ("--conf", f"{key}={value}")]
        java = str(find_java().resolve().parent.parent)
        given = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "spark-internal"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self._log.parent,
                env={**given, "JAVA_HOME": java, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
            )
        self._wait()

    def kill(self) -> None:
        """As a crash would."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _wait(self) -> None:
        give_up = time.monotonic() + _START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
            except OSError:
                assert self._process is not None
                assert self._process.poll() is None, self._log.read_text()[-2000:]
                assert time.monotonic() < give_up, "the Spark Connect server does not listen"
                time.sleep(0.1)
            else:
                return
