"""What can be known of the image, the compose file and the systemd unit without running any of them."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from psql_streamer.api.app import ApiServer, create_app
from psql_streamer.config.model import ServiceOptions
from psql_streamer.interfaces import Status
from psql_streamer.metrics.metrics import Metrics
from psql_streamer.model import Stats
from psql_streamer.pipeline.snapshots import SnapshotsOfSources
from tests.dockerfile import ROOT, argument, copied, ignored, image_environment, instructions

SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
BUILD, FINAL = 0, 1
CONFIG = "/etc/psql-streamer/psql-streamer.toml"


def test_every_base_image_is_a_slim_python_that_the_package_supports() -> None:
    bases = [each.argument.split()[0] for each in instructions() if each.keyword == "FROM"]
    assert len(bases) == 2
    assert len(set(bases)) == 1, "an environment made with one Python does not run with another"
    version = re.fullmatch(r"python:(3\.\d+)-slim-bookworm", bases[0])
    assert version
    assert tuple(map(int, version[1].split("."))) >= (3, 11)


def test_everything_that_is_copied_exists_and_reaches_the_builder() -> None:
    sources = copied(BUILD) + copied(FINAL)
    assert sources
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert [source for source in sources if ignored(source)] == []


def test_the_builder_gets_every_package_and_what_builds_it() -> None:
    assert {package.partition(".")[0] for package in PACKAGES} <= set(copied(BUILD))
    assert {"pyproject.toml", "README.md", "LICENSE", "requirements.lock"} <= set(copied(BUILD))


@pytest.mark.parametrize("spark", ["yes", "no"])
def test_an_image_without_spark_is_one_build_argument_away(tmp_path: Path, spark: str) -> None:
    (libraries,) = [each.argument for each in instructions() if "requirements.in" in each.argument]
    chosen = libraries[libraries.index("python -c") : libraries.index("&& pip wheel")]
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    environ = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "SPARK": spark}
    subprocess.run(["sh", "-euc", chosen], cwd=tmp_path, env=environ, check=True)
    names = (tmp_path / "requirements.in").read_text()
    assert ("pyspark" in names) is (spark == "yes")
    assert "pyarrow" in names
    (java,) = [each.argument for each in instructions() if "jre" in each.argument]
    assert java.startswith('if [ "$SPARK" = no ]; then exit 0; fi')
    assert [each.argument for each in instructions() if each.keyword == "ARG"] == ["SPARK=yes"] * 2


@pytest.mark.parametrize(
    "path",
    [".git/config", ".venv/bin/python", "tests/unit/test_api.py", "psql_streamer/__pycache__/api.pyc", "build/lib"],
)
def test_nothing_else_reaches_the_builder(path: str) -> None:
    assert ignored(path)


def test_the_service_is_not_root() -> None:
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", argument("USER")), "Kubernetes' runAsNonRoot wants numbers"
    order = [each.keyword for each in instructions() if each.stage == FINAL]
    assert "RUN" not in order[order.index("USER") :]


def test_the_position_outlives_the_container() -> None:
    assert argument("VOLUME") == f"{image_environment()['XDG_STATE_HOME']}/psql-streamer"


def test_packages_come_without_recommendations_and_leave_no_lists() -> None:
    installs = [each.argument for each in instructions() if "apt-get install" in each.argument]
    assert installs
    for install in installs:
        assert "--no-install-recommends" in install
        assert install.endswith("rm -rf /var/lib/apt/lists/*")


def test_docker_stop_asks_the_service_to_end() -> None:
    assert argument("STOPSIGNAL") == "SIGTERM"


def test_the_entry_point_is_copied_and_ends_as_psql_streamer() -> None:
    (command,) = json.loads(argument("ENTRYPOINT"))
    assert f"deploy/{command}" in copied(FINAL)
    script = (ROOT / "deploy" / command).read_text()
    assert os.access(ROOT / "deploy" / command, os.X_OK)
    assert script.splitlines()[-1] == 'exec psql-streamer "$@"'
    assert "psql-streamer" in SCRIPTS


@pytest.mark.parametrize(
    ("mounted", "given"), [(True, ["-config", "{config}", "check", "-v"]), (False, ["check", "-v"])]
)
def test_a_mounted_configuration_file_is_used(tmp_path: Path, mounted: bool, given: list[str]) -> None:
    config = tmp_path / "psql-streamer.toml"
    if mounted:
        config.touch()
    (tmp_path / "psql-streamer").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "psql-streamer").chmod(0o755)
    script = (ROOT / "deploy" / "entrypoint.sh").read_text()
    assert CONFIG in script
    entrypoint = tmp_path / "entrypoint.sh"
    entrypoint.write_text(script.replace(CONFIG, str(config)))
    ran = subprocess.run(
        ["sh", entrypoint, "check", "-v"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.splitlines() == [word.format(config=config) for word in given]


class Idle:
    """A service without parts."""

    snapshots = SnapshotsOfSources({}, [])

    def status(self) -> Mapping[str, Status]:
        return {}

    def stats(self) -> Mapping[str, Stats]:
        return {}

    def set_debug(self, on: bool) -> None:
        raise AssertionError(f"a health check switched debug to {on}")


@pytest.fixture
def listening() -> Iterator[ApiServer]:
    server = ApiServer(create_app(Idle(), Metrics()), "127.0.0.1", 0)
    server.start()
    yield server
    server.stop()


def health_check(http: str) -> int:
    """The exit code of the image's HEALTHCHECK when the service listens there."""
    command = json.loads(argument("HEALTHCHECK").partition("CMD ")[2])
    assert command[0] == "python"
    proxied = {"http_proxy": "http://127.0.0.1:9", "PSQL_STREAMER__HTTP": http}
    return subprocess.run([sys.executable, *command[1:]], env=proxied, capture_output=True, timeout=30).returncode


def test_the_health_check_passes_while_the_service_answers(listening: ApiServer) -> None:
    assert health_check(f":{listening.address.rpartition(':')[2]}") == 0
    listening.stop()
    assert health_check(f":{listening.address.rpartition(':')[2]}") != 0


def test_the_exposed_port_is_the_one_that_is_listened_on() -> None:
    address = ServiceOptions.model_validate(
        {"http": image_environment()["PSQL_STREAMER__HTTP"], "lmdb": "positions"}
    ).http
    assert address.host == ""
    assert address.port == int(argument("EXPOSE"))


@pytest.fixture(scope="module")
def compose() -> Mapping[str, Any]:
    return yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())


def seconds(text: str) -> float:
    number = re.fullmatch(r"(\d+)s?", text)
    assert number, text
    return float(number[1])


DRAIN = ServiceOptions.model_fields["drain_timeout"].default


def test_compose_starts_the_service_when_both_servers_are_healthy(compose: Mapping[str, Any]) -> None:
    services = compose["services"]
    waits = services["psql-streamer"]["depends_on"]
    assert set(waits) == {"postgres", "kafka"}
    for name, wait in waits.items():
        assert wait["condition"] == "service_healthy"
        assert services[name]["healthcheck"]["test"]


def test_compose_builds_this_image_from_the_repository(compose: Mapping[str, Any]) -> None:
    assert (ROOT / "deploy" / compose["services"]["psql-streamer"]["build"]["context"] / "Dockerfile").exists()


def test_compose_gives_the_service_what_a_start_without_a_file_needs(compose: Mapping[str, Any]) -> None:
    service = compose["services"]["psql-streamer"]
    given = service["environment"]
    assert given["PG_HOST"] in compose["services"]
    broker, _, port = given["KAFKA_BROKERS"].partition(":")
    assert f"//{broker}:{port}" in compose["services"][broker]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert given["PG_DATABASE"] == compose["services"]["postgres"]["environment"]["POSTGRES_DB"]
    sql = compose["configs"]["shop.sql"]["content"]
    assert f"CREATE ROLE {given['PG_USERNAME']} LOGIN REPLICATION PASSWORD '{given['PG_PASSWORD']}'" in sql
    assert "CREATE PUBLICATION psql_streamer" in sql


def test_compose_reads_row_changes_from_the_wal(compose: Mapping[str, Any]) -> None:
    assert "wal_level=logical" in compose["services"]["postgres"]["command"]


def test_compose_keeps_positions_and_publishes_on_the_loopback_only(compose: Mapping[str, Any]) -> None:
    assert f"positions:{argument('VOLUME')}" in compose["services"]["psql-streamer"]["volumes"]
    named = {volume.partition(":")[0] for service in compose["services"].values() for volume in service["volumes"]}
    assert named == set(compose["volumes"])
    ports = [port for service in compose["services"].values() for port in service["ports"]]
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_every_image_in_compose_has_a_version(compose: Mapping[str, Any]) -> None:
    images = [service["image"] for service in compose["services"].values() if "image" in service]
    assert all(re.search(r":\d", image) for image in images)


def test_compose_waits_for_the_drain(compose: Mapping[str, Any]) -> None:
    assert seconds(compose["services"]["psql-streamer"]["stop_grace_period"]) > DRAIN


UNIT = (ROOT / "deploy" / "psql-streamer.service").read_text()


def directive(name: str) -> str:
    (value,) = re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)
    return value


def test_the_unit_runs_an_installed_command_as_a_user() -> None:
    program, *arguments = shlex.split(directive("ExecStart"))
    assert Path(program).name in SCRIPTS
    assert arguments == ["-config", CONFIG]
    assert directive("User") != "root"


def test_the_unit_waits_for_the_drain_and_does_not_repeat_a_configuration_error() -> None:
    assert seconds(directive("TimeoutStopSec")) > DRAIN
    assert directive("Restart") == "on-failure"
    assert directive("RestartPreventExitStatus") == "2"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not on PATH")
def test_systemd_has_nothing_to_say_about_the_unit(tmp_path: Path) -> None:
    program = shlex.split(directive("ExecStart"))[0]
    unit = tmp_path / "psql-streamer.service"
    unit.write_text(UNIT.replace(program, shutil.which("true") or "/bin/true"))
    verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    # It loads the units of the machine, too, and complains about those as well.
    assert [line for line in verified.stderr.splitlines() if unit.name in line] == []


@pytest.mark.skipif(not shutil.which("hadolint"), reason="hadolint is not on PATH")
def test_hadolint_has_nothing_to_say() -> None:
    linted = subprocess.run(["hadolint", ROOT / "Dockerfile"], capture_output=True, text=True)
    assert (linted.returncode, linted.stdout) == (0, "")
