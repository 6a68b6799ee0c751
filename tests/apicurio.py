"""A real schema registry for tests: Apicurio Registry, which speaks the protocol of Confluent's. The last version that
runs on Java 17.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import tarfile
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

from psql_streamer.embedded.cache import fill, make_cache_folder
from psql_streamer.embedded.java import find_java
from psql_streamer.embedded.ports import LOOPBACK, free_ports
from psql_streamer.embedded.server import KillableServer
from psql_streamer.errors import StreamerError

VERSION = "3.0.9"
_FETCH_SECONDS = 600
_MODULE = f"""
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="psql-streamer" module="tests"/>
  <dependencies>
    <dependency org="io.apicurio" name="apicurio-registry-app" rev="{VERSION}" transitive="false">
      <artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""
_SETTINGS = """
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""


class ApicurioRegistry(KillableServer):
    """Keeps its schemas when it is killed and started again."""

    def __init__(self) -> None:
        self._java = find_java()
        self._jar = _program() / f"apicurio-registry-app-{VERSION}-runner.jar"
        [self._port] = free_ports(1)
        super().__init__("Apicurio", None)

    @property
    def url(self) -> str:
        """As clients of Confluent's registry are given it."""
        return f"http://{LOOPBACK}:{self._port}/apis/ccompat/v7"

    def start(self) -> None:
        """Return when it answers."""
        settings = {
            "apicurio.datasource.url": f"jdbc:h2:file:{self.data_dir}/schemas;WRITE_DELAY=0",
            "quarkus.http.host": LOOPBACK,
            "quarkus.http.port": str(self._port),
            "quarkus.log.level": "WARN",
        }
        options = [f"-D{name}={value}" for name, value in settings.items()]
        quick = ("-Xmx200m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        self._spawn([self._java, *quick, *options, "-jar", self._jar], cwd=self._run_dir)
        self._await_answer()

    def register(self, subject: str, schema: Any, kind: str = "AVRO", references: Any = ()) -> int:
        """The id of a schema, which is made if it is not there."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        body = json.dumps({"schema": text, "schemaType": kind, "references": list(references)}).encode()
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        asked = urllib.request.Request(f"{self.url}/subjects/{subject}/versions", body, headers)
        with urllib.request.urlopen(asked, timeout=30) as response:
            return int(json.load(response)["id"])

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/schemas/types", timeout=5) as response:
                return bool(response.status == 200)
        except OSError:
            return False


def _program() -> Path:
    """The folder of the program; the first call downloads 109 MB. Raises StreamerError."""
    folder = make_cache_folder() / "apicurio" / VERSION
    if not folder.is_dir():
        fill(folder, _fetch)
    return folder


def _fetch(scratch: Path) -> Path:
    """With Ivy, which is part of pyspark."""
    package = importlib.util.find_spec("pyspark")
    assert package is not None
    assert package.submodule_search_locations is not None
    ivy = next(Path(package.submodule_search_locations[0], "jars").glob("ivy-*.jar"))
    (scratch / "ivy.xml").write_text(_MODULE)
    (scratch / "settings.xml").write_text(_SETTINGS)
    command = [
        *(str(find_java()), f"-Divy.default.ivy.user.dir={scratch}", "-cp", str(ivy), "org.apache.ivy.Main", "-error"),
        *("-settings", "settings.xml", "-ivy", "ivy.xml", "-cache", str(scratch / "ivy")),
        *("-confs", "default", "-types", "tar.gz", "-retrieve", f"{scratch}/[artifact].[ext]"),
    ]
    run = partial(subprocess.run, stdin=subprocess.DEVNULL, capture_output=True, cwd=scratch, timeout=_FETCH_SECONDS)
    archive = scratch / "apicurio-registry-app.tar.gz"
    try:
        complete = run(command).returncode == 0 and archive.exists()
    except subprocess.TimeoutExpired:
        complete = False
    if not complete:
        raise StreamerError(f"Apicurio Registry {VERSION} could not be fetched", "check the network")
    with tarfile.open(archive) as packed:
        packed.extractall(scratch / "program", filter="data")
    return scratch / "program"
