"""Apache Kafka's jars, fetched once into a cache folder by the resolver that is part of pyspark."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from functools import partial
from pathlib import Path

from psql_streamer.embedded.cache import fill, make_cache_folder
from psql_streamer.embedded.java import find_java
from psql_streamer.errors import StreamerError

KAFKA_VERSION = "4.1.1"

_JARS_FETCH_SECONDS = 600


_LOGGING = ("slf4j-api-*.jar", "log4j-slf4j2-impl-*.jar", "log4j-api-*.jar", "log4j-core-*.jar")


def build_class_path(version: str = KAFKA_VERSION) -> str:
    """The JVM's class path for a broker. Kafka's pom names no logging backend: pyspark's comes first."""
    logging = [next(_find_spark_jars().glob(pattern)) for pattern in _LOGGING]
    return os.pathsep.join([*map(str, logging), f"{provide_kafka_jars(version)}/*"])


def provide_kafka_jars(version: str = KAFKA_VERSION) -> Path:
    """The folder with all jars of a broker of this version; the first call downloads about 45 MB."""
    folder = make_cache_folder() / "kafka" / version
    if not folder.is_dir():
        fill(folder, partial(_fetch, version))
    return folder


def _fetch(version: str, scratch: Path) -> Path:
    jars = scratch / "jars"
    command = [
        str(find_java()),
        f"-Divy.default.ivy.user.dir={scratch}",
        # What spark.jars.packages resolves with; run alone it needs no Spark session.
        *("-cp", str(next(_find_spark_jars().glob("ivy-*.jar")))),
        "org.apache.ivy.Main",
        "-error",
        *("-cache", str(scratch / "ivy")),
        *("-dependency", "org.apache.kafka", "kafka_2.13", version),
        *("-confs", "default"),
        *("-types", "jar", "bundle"),
        *("-retrieve", f"{jars}/[artifact]-[revision].[ext]"),
    ]
    try:
        fetched = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=scratch, timeout=_JARS_FETCH_SECONDS
        )
        complete = fetched.returncode == 0 and (jars / f"kafka_2.13-{version}.jar").exists()
    except subprocess.TimeoutExpired:
        complete = False
    if not complete:
        raise StreamerError(
            f"Apache Kafka {version} could not be fetched from the Maven repository",
            "check the network, or name running brokers (KAFKA_BROKERS=host:port)",
        )
    shutil.rmtree(scratch / "ivy", ignore_errors=True)
    return jars


def _find_spark_jars() -> Path:
    package = importlib.util.find_spec("pyspark")
    for location in (package.submodule_search_locations or []) if package else []:
        jars = Path(location, "jars")
        if jars.is_dir():
            return jars
    raise StreamerError("pyspark with its jars is not installed", "pip install pyspark")
