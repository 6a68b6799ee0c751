"""The sink and the format of docs/extending.md, installed as a package of a third party."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import tomli

from tests.database import Database
from tests.extending_page import blocks, files
from tests.sections import kafka_section, postgres_section
from tests.service import Service

PROJECT, SECTION = blocks("toml")


@pytest.fixture
def environ(tmp_path: Path) -> Mapping[str, str]:
    """The environment of a process that finds the package: its modules, and its metadata as pip writes it."""
    packages = tmp_path / "packages"
    for path, text in files().items():
        module = packages / path
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text(text)
    project = tomli.loads(PROJECT)["project"]
    metadata = packages / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (metadata / "METADATA").write_text(head)
    groups = project["entry-points"].items()
    (metadata / "entry_points.txt").write_text(
        "\n".join(
            line for group, points in groups for line in [f"[{group}]", *(f"{k} = {v}" for k, v in points.items())]
        )
    )
    return {**os.environ, "PYTHONPATH": str(packages)}


def section(file: Path) -> str:
    assert "/var/lib/shop/events.txt" in SECTION
    return SECTION.replace("/var/lib/shop/events.txt", str(file))


def test_a_packages_sink_writes_events_in_the_packages_format(
    database: Database, tmp_path: Path, environ: Mapping[str, str]
) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, customer text); CREATE TABLE sessions (id int)")
    database.execute("CREATE PUBLICATION p FOR ALL TABLES")
    file = tmp_path / "events.txt"
    with Service(tmp_path, postgres_section(database) + section(file), environ=environ) as service:
        service.start()
        database.execute("INSERT INTO sessions VALUES (1); INSERT INTO orders VALUES (1, 'Zoë'), (2, 'b')")
        database.execute("UPDATE orders SET customer = 'c' WHERE id = 2; TRUNCATE orders")
        service.until_durable(database)
        assert service.stats()["sink.lines"]["events"] == 4
        assert service.stop() == 0
    head = '{"region":"eu","table":"public.orders","op":'
    assert file.read_text().splitlines() == [
        '{"customer":"Zoë"}\t' + head + '"insert","row":{"id":1,"customer":"Zoë"}}',
        '{"customer":"b"}\t' + head + '"insert","row":{"id":2,"customer":"b"}}',
        '{"customer":"c"}\t' + head + '"update","row":{"id":2,"customer":"c"}}',
        "null\t" + head + '"truncate"}',
    ]


def test_what_is_wrong_with_a_packages_options_is_told_key_by_key(
    database: Database, tmp_path: Path, environ: Mapping[str, str]
) -> None:
    kafka = kafka_section("localhost:9092", "t", format="breif") + "[sink.k.formatOptions]\nregion = 'eu'\n"
    lines = section(tmp_path / "events.txt").replace("region", "regoin").replace("topicFallback", "topicFalback")
    service = Service(tmp_path, postgres_section(database) + kafka + lines, environ=environ)
    command = [sys.executable, "-m", "psql_streamer", "validate", "-config", str(service.config)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert done.returncode == 3
    assert sorted(line.partition(".toml: ")[2] for line in done.stdout.splitlines()) == [
        'sink.k.format: "breif" is not a known format; did you mean brief?',
        "sink.lines.formatOptions.region: is required",
        "sink.lines.formatOptions: unknown key regoin; did you mean region?",
        "sink.lines: unknown key topicFalback; did you mean topicFallback?",
    ]
