"""deploy/two-machines: the two configuration files load, and the compose file gives them what they name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml

from psql_streamer.config import load
from psql_streamer.config.model import Config
from sinks.kafka.options import KafkaSinkOptions
from sources.kafka.options import KafkaSourceOptions
from sources.mysql.options import MysqlOptions
from tests.dockerfile import ROOT
from tests.mysql_accounts import documented_rights

FOLDER = ROOT / "deploy" / "two-machines"
SERVICES = {"extractor": "extractor.toml", "applier": "applier.toml"}
IN_CONTAINER = "/etc/psql-streamer/psql-streamer.toml"
VOLUME = "/var/lib/psql-streamer"
HTTP_PORT = 8080


@pytest.fixture(scope="module")
def compose() -> Mapping[str, Any]:
    return yaml.safe_load((FOLDER / "compose.yaml").read_text())


def loaded(compose: Mapping[str, Any], service: str) -> Config:
    """The configuration of a service, in the environment that the compose file gives it and in no other."""
    return load(FOLDER / SERVICES[service], compose["services"][service]["environment"])


def brokers(compose: Mapping[str, Any], hosts: tuple[str, ...]) -> set[str]:
    """The services that these addresses lead to; each must be an address that the broker advertises."""
    found = set()
    for host in hosts:
        name = host.partition(":")[0]
        assert f"//{host}" in compose["services"][name]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
        found.add(name)
    return found


def kafka_sink(config: Config) -> KafkaSinkOptions:
    (part,) = config.sinks.values()
    assert isinstance(part.options, KafkaSinkOptions)
    return part.options


def extractor_source(compose: Mapping[str, Any]) -> MysqlOptions:
    (part,) = loaded(compose, "extractor").sources.values()
    assert isinstance(part.options, MysqlOptions)
    return part.options


def applier_source(compose: Mapping[str, Any]) -> KafkaSourceOptions:
    (part,) = loaded(compose, "applier").sources.values()
    assert isinstance(part.options, KafkaSourceOptions)
    return part.options


@pytest.mark.parametrize("service", SERVICES)
def test_a_file_loads_without_a_warning_in_the_environment_that_compose_gives(
    compose: Mapping[str, Any], service: str
) -> None:
    config = loaded(compose, service)
    assert config.warnings == ()
    assert config.handlers == {}, "the image is built without Spark"
    assert compose["services"][service]["build"]["args"]["SPARK"] == "no"


@pytest.mark.parametrize("service", SERVICES)
def test_a_file_is_mounted_where_the_image_looks_for_it(compose: Mapping[str, Any], service: str) -> None:
    assert IN_CONTAINER in (ROOT / "deploy" / "entrypoint.sh").read_text()
    assert f"./{SERVICES[service]}:{IN_CONTAINER}:ro" in compose["services"][service]["volumes"]


def test_positions_are_on_a_volume_of_each_services_own(compose: Mapping[str, Any]) -> None:
    volumes = []
    for service in SERVICES:
        (volume,) = [each for each in compose["services"][service]["volumes"] if each.endswith(f":{VOLUME}")]
        volumes.append(volume.partition(":")[0])
        assert str(loaded(compose, service).lmdb.parent) == VOLUME
    assert len(set(volumes)) == len(SERVICES)
    named = [
        volume.partition(":")[0]
        for service in compose["services"].values()
        for volume in service["volumes"]
        if not volume.startswith("./")
    ]
    assert sorted(named) == sorted(compose["volumes"])


def test_the_image_is_built_from_the_repository_and_every_other_one_has_a_version(compose: Mapping[str, Any]) -> None:
    for name, service in compose["services"].items():
        if name in SERVICES:
            assert (FOLDER / service["build"]["context"] / "Dockerfile").exists()
        else:
            assert re.search(r":\d", service["image"])


def test_the_extractor_logs_in_as_the_user_that_is_made(compose: Mapping[str, Any]) -> None:
    dsn = urlsplit(extractor_source(compose).dsn.get_secret_value())
    sql = compose["configs"]["shop.sql"]["content"]
    assert f"CREATE USER {dsn.username}@'%' IDENTIFIED BY '{unquote(dsn.password or '')}'" in sql
    rights = documented_rights()["MariaDB, with serverId"]
    assert f"GRANT {rights} ON *.* TO {dsn.username}@'%'" in sql
    assert dsn.hostname in compose["services"]["extractor"]["depends_on"]


def test_the_server_writes_the_binary_log_that_the_extractor_reads(compose: Mapping[str, Any]) -> None:
    command = compose["services"]["mariadb"]["command"]
    assert {"--binlog-format=ROW", "--binlog-row-metadata=FULL", "--binlog-row-image=FULL"} <= set(command)
    assert "--log-bin=binlog" in command
    (server_id,) = [int(each.partition("=")[2]) for each in command if each.startswith("--server-id=")]
    assert extractor_source(compose).server_id not in (0, server_id)


def test_the_applier_reads_the_topics_that_the_extractor_writes_and_no_dead_letters(compose: Mapping[str, Any]) -> None:
    written, read = kafka_sink(loaded(compose, "extractor")), applier_source(compose)
    assert brokers(compose, written.hosts) == brokers(compose, read.hosts) == {"hub"}
    (pattern,) = read.topics
    assert re.match(pattern, f"{written.topic_prefix}.shop.orders")
    assert not any(re.match(pattern, topic) for topic in (written.dead_letter_topic, read.dead_letter_topic))
    assert written.dead_letter_topic
    assert read.dead_letter_topic


def test_the_applier_writes_to_the_other_cluster_and_in_the_same_format(compose: Mapping[str, Any]) -> None:
    extractor, applier = kafka_sink(loaded(compose, "extractor")), kafka_sink(loaded(compose, "applier"))
    assert brokers(compose, applier.hosts) == {"target"}
    assert extractor.format == applier.format == "event"


def test_the_applier_has_the_instance_id_that_compose_gives(compose: Mapping[str, Any]) -> None:
    assert applier_source(compose).instance_id == compose["services"]["applier"]["environment"]["APPLIER_NAME"]


def test_the_server_and_the_topics_keep_what_is_not_read_for_the_same_time(compose: Mapping[str, Any]) -> None:
    (seconds,) = [
        int(each.partition("=")[2])
        for each in compose["services"]["mariadb"]["command"]
        if each.startswith("--binlog-expire-logs-seconds=")
    ]
    topics = kafka_sink(loaded(compose, "extractor")).create_topics
    assert topics is not None
    assert int(topics.config["retention.ms"]) == seconds * 1000


def test_services_start_when_what_they_need_is_healthy_and_stop_after_the_drain(compose: Mapping[str, Any]) -> None:
    services = compose["services"]
    for service in SERVICES:
        config = loaded(compose, service)
        waits = services[service]["depends_on"]
        assert {"extractor": {"mariadb", "hub"}, "applier": {"hub", "target"}}[service] == set(waits)
        for name, wait in waits.items():
            assert wait["condition"] == "service_healthy"
            assert services[name]["healthcheck"]["test"]
        assert float(services[service]["stop_grace_period"].removesuffix("s")) > config.drain_timeout
        assert services[service]["read_only"]


def test_ports_are_on_the_loopback_only_and_lead_to_the_http_api(compose: Mapping[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", ())]
    assert len(set(ports)) == len(SERVICES)
    assert all(re.fullmatch(rf"127\.0\.0\.1:\d+:{HTTP_PORT}", port) for port in ports)
