"""deploy/spark-cluster: the configuration loads, and the compose file gives it what it names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from psql_streamer.config import load
from psql_streamer.config.model import Config
from psql_streamer.spark.addresses import parse_addresses
from psql_streamer.spark.options import SparkOptions
from sinks.kafka.options import KafkaSinkOptions
from tests.dockerfile import ROOT

FOLDER = ROOT / "deploy" / "spark-cluster"
IN_CONTAINER = "/etc/psql-streamer"
WORKERS = ("spark-worker-1", "spark-worker-2")


@pytest.fixture(scope="module")
def compose() -> Mapping[str, Any]:
    return yaml.safe_load((FOLDER / "compose.yaml").read_text())


@pytest.fixture(scope="module")
def config(compose: Mapping[str, Any]) -> Config:
    return load(FOLDER / "psql-streamer.toml", compose["services"]["psql-streamer"]["environment"])


def spark_options(config: Config) -> SparkOptions:
    (part,) = (part for part in config.handlers.values() if isinstance(part.options, SparkOptions))
    options = part.options
    assert isinstance(options, SparkOptions)
    return options


def test_the_configuration_loads_without_a_warning(config: Config) -> None:
    assert config.warnings == ()


def test_the_master_is_where_its_container_listens_and_workers_look(compose: Mapping[str, Any], config: Config) -> None:
    master = spark_options(config).master
    [(host, port)] = parse_addresses(master)
    command = compose["services"][host]["command"]
    assert command[command.index("--host") + 1] == host
    assert command[command.index("--port") + 1] == str(port)
    assert [compose["services"][worker]["command"][-1] for worker in WORKERS] == [master, master]


def test_executors_fit_into_the_workers_and_find_the_driver(compose: Mapping[str, Any], config: Config) -> None:
    conf = spark_options(config).conf
    assert conf["spark.driver.host"] in compose["services"]
    command = compose["services"][WORKERS[0]]["command"]
    assert int(conf["spark.cores.max"]) <= len(WORKERS) * int(command[command.index("--cores") + 1])


def test_executors_have_the_image_of_the_service(compose: Mapping[str, Any]) -> None:
    services = compose["services"]
    contexts = {services[name]["build"]["context"] for name in ("psql-streamer", "spark-master", *WORKERS)}
    assert [(FOLDER / context / "Dockerfile").resolve() for context in contexts] == [ROOT / "Dockerfile"]
    assert services["spark-master"]["entrypoint"] == ["spark-class"], "pyspark's wheel puts it on the PATH"


def test_the_rules_are_mounted_where_the_configuration_looks(compose: Mapping[str, Any], config: Config) -> None:
    options = spark_options(config)
    mounted = {
        inside: outside
        for outside, inside, *_ in (each.split(":") for each in compose["services"]["psql-streamer"]["volumes"])
    }
    assert mounted[f"{IN_CONTAINER}/psql-streamer.toml"] == "./psql-streamer.toml"
    (folder,) = options.py_files
    (module,) = options.function_modules
    source = (FOLDER / mounted[folder] / f"{module}.py").read_text()
    ((rule,),) = options.tables.values()
    assert rule.function is not None
    assert re.search(rf"^def {rule.function.partition(':')[2]}\(", source, re.MULTILINE)


def test_the_sink_leads_to_the_broker_and_ports_are_on_the_loopback_only(
    compose: Mapping[str, Any], config: Config
) -> None:
    (sink,) = config.sinks.values()
    assert isinstance(sink.options, KafkaSinkOptions)
    (broker,) = sink.options.hosts
    host = broker.partition(":")[0]
    assert f"//{broker}" in compose["services"][host]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    ports = [port for service in compose["services"].values() for port in service.get("ports", ())]
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_every_image_has_a_version(compose: Mapping[str, Any]) -> None:
    images = [service["image"] for service in compose["services"].values() if "image" in service]
    assert all(re.search(r":\S*\d", image) for image in images)
