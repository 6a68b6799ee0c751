"""A compose file of deploy/ without containers: its services as processes, its servers as embedded ones.

Its files, SQL and environment are used as they are. Only names that lead to other containers become addresses on the
loopback interface, and the image's folders become folders of the test.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from psql_streamer.embedded.ports import free_ports
from tests.dockerfile import ROOT, argument, image_environment
from tests.service import ServiceProcess

_CONFIGURATION, _STATE = "/etc/psql-streamer", "/var/lib"


class Deployment:
    """file: the compose file, below deploy/."""

    def __init__(self, file: str) -> None:
        self._file = ROOT / "deploy" / file
        text = self._file.read_text()
        self._services: Mapping[str, Any] = yaml.safe_load(text)["services"]
        self._configs: Mapping[str, Any] = yaml.safe_load(text)["configs"]
        self._shown = " ".join(line.strip("# \\") for line in text.splitlines() if line.startswith("#"))

    @property
    def shown_insert(self) -> str:
        """The statement that its head comment has the reader run."""
        return re.findall(r'"(INSERT INTO [^"]+)"', self._shown)[0]

    @property
    def shown_topic(self) -> str:
        """The topic that its head comment has the reader look at."""
        return re.findall(r"--topic (\S+)", self._shown)[0]

    def sql(self, service: str) -> str:
        """What a server runs when its database has been made."""
        (config,) = self._services[service]["configs"]
        assert config["target"].startswith("/docker-entrypoint-initdb.d/")
        return str(self._configs[config["source"]]["content"])

    def server_options(self, service: str) -> dict[str, str]:
        """`--binlog-format=ROW`, or `-c wal_level=logical`, as settings of an embedded server."""
        given = [word.removeprefix("--") for word in self._services[service]["command"] if "=" in word]
        return {name.replace("-", "_"): value for name, _, value in (each.partition("=") for each in given)}

    def broker_properties(self, service: str) -> dict[str, str]:
        """As the image of Apache Kafka makes them of its environment, without what says where the broker is."""
        named = {
            name.removeprefix("KAFKA_").lower().replace("_", "."): value
            for name, value in self._services[service]["environment"].items()
        }
        return {name: value for name, value in named.items() if name not in _PLACES}

    def service(self, name: str, folder: Path, servers: Mapping[str, str], **environment: str) -> DeployedService:
        """One of the services that are built here. folder: it is made, for what the service has of its own.

        servers: a name as it stands in files and the environment -> what stands there instead. environment: of this
        process, over that of the compose file.
        """
        folder.mkdir()
        places = {**servers, _CONFIGURATION: str(folder / "etc"), _STATE: str(folder / "state")}
        for volume in self._services[name]["volumes"]:
            held, inside = volume.split(":")[:2]
            target = Path(_placed(inside, places))
            if held.startswith("./"):
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(_placed((self._file.parent / held).read_text(), places))
            else:
                target.mkdir(parents=True)
        given = image_environment() | self._services[name]["environment"] | environment
        return DeployedService(folder, {key: _placed(value, places) for key, value in given.items()}, places)


class DeployedService(ServiceProcess):
    """What the image's entry point starts. environ: what the image, the compose file and the test set."""

    def __init__(self, folder: Path, environ: Mapping[str, str], places: Mapping[str, str]) -> None:
        [port] = free_ports(1)
        entry_point = folder / "entrypoint.sh"
        entry_point.write_text(_placed((ROOT / "deploy" / "entrypoint.sh").read_text(), places))
        # The path leads to this installation in place of the image's.
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._surroundings = {**environ, "PATH": path, "PSQL_STREAMER__HTTP": f"127.0.0.1:{port}"}
        command = ["sh", str(entry_point), *json.loads(argument("CMD"))]
        super().__init__(command, port, folder / "service.log", Path(environ["HOME"]), self._surroundings)

    def is_healthy(self) -> bool:
        """Whether the image's health check passes."""
        program, *arguments = json.loads(argument("HEALTHCHECK").partition("CMD ")[2])
        assert program == "python"
        return subprocess.run([sys.executable, *arguments], env=self._surroundings, timeout=30).returncode == 0


_PLACES = ("listeners", "advertised.listeners", "controller.quorum.voters", "log.dirs")


def _placed(text: str, places: Mapping[str, str]) -> str:
    """With other names for what has another place here."""
    for name, instead in places.items():
        text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", instead, text)
    return text
