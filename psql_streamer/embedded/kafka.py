"""A real Apache Kafka broker of one's own: KRaft, broker and controller in one JVM."""

from __future__ import annotations

import base64
import os
import shlex
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from psql_streamer.embedded.java import find_java
from psql_streamer.embedded.kafka_jars import build_class_path
from psql_streamer.embedded.ports import LOOPBACK, free_ports, is_listening
from psql_streamer.embedded.server import KillableServer
from psql_streamer.errors import StreamerError

_SINGLE_BROKER = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "true",
    # After a SIGKILL the new process waits until the old one's registration has run out (9 s as shipped).
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


class EmbeddedKafka(KillableServer):
    """One broker on free loopback ports; replication factors are 1.

    log_dir: where topics live, kept; None: a temporary folder, removed by `close`.
    num_partitions: of topics that are created automatically.
    properties: any of server.properties, over the defaults.
    heap: the JVM's -Xmx. Its other options are those of KAFKA_OPTS, as Kafka's own scripts have it.
    """

    stop_seconds = 30.0

    def __init__(
        self,
        log_dir: Path | None = None,
        *,
        num_partitions: int = 3,
        properties: Mapping[str, str] | None = None,
        heap: str = "256m",
    ) -> None:
        self._java = find_java()
        self._class_path = build_class_path()
        self._heap = heap
        self._port, controller_port = free_ports(2)
        super().__init__("Kafka", log_dir)
        self._properties = self._run_dir / "server.properties"
        settings = _SINGLE_BROKER | {
            "listeners": f"PLAINTEXT://{LOOPBACK}:{self._port},CONTROLLER://{LOOPBACK}:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{self._port}",
            "controller.quorum.voters": f"1@{LOOPBACK}:{controller_port}",
            "log.dirs": str(self.data_dir),
            "num.partitions": str(num_partitions),
        }
        lines = [f"{name}={value}\n" for name, value in (settings | dict(properties or {})).items()]
        self._properties.write_text("".join(lines))

    @property
    def bootstrap(self) -> str:
        """host:port for bootstrap.servers; the same after a restart."""
        return f"{LOOPBACK}:{self._port}"

    def start(self) -> None:
        """Return when the broker answers a metadata request; formats the log folder on the first start."""
        if not (self.data_dir / "meta.properties").exists():
            self._format()
        self._spawn(self._make_command("kafka.Kafka", str(self._properties)), cwd=self._run_dir)
        self._await_answer()

    def _format(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        # Kafka's Uuid.fromString: 16 bytes in URL-safe base64 without padding, 22 characters.
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        formatted = subprocess.run(
            self._make_command(
                "kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", "-c", str(self._properties)
            ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=self._run_dir,
        )
        if formatted.returncode != 0:
            said = (formatted.stderr or formatted.stdout).strip()
            raise StreamerError(f"Kafka could not format {self.data_dir} ({said})", "give an empty, writable folder")

    def _make_command(self, main_class: str, *arguments: str) -> list[str]:
        return [
            str(self._java),
            f"-Xmx{self._heap}",
            *shlex.split(os.environ.get("KAFKA_OPTS", "")),
            "-XX:+UseSerialGC",
            "-Xshare:auto",
            "-Dlog4j2.level=WARN",
            *("-cp", self._class_path),
            main_class,
            *arguments,
        ]

    def _answers(self) -> bool:
        if not is_listening(self._port):
            return False
        try:
            AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0}).list_topics(timeout=10)
        except KafkaException:
            return False
        return True
