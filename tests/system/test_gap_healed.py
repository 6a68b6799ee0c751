"""A gap, mended as the message and docs/snapshots.md say: the topics end with the rows of the table, and no others."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.database import Database
from tests.kafka_reader import consume
from tests.kafka_sinks import create_topic
from tests.sections import kafka_section, postgres_section
from tests.service import Service


@pytest.mark.behaviour("N35", "N38")
@pytest.mark.parametrize("event_format", [pytest.param("flat", marks=pytest.mark.soak), "debezium"])
def test_after_an_accepted_gap_and_reconcile_the_topic_has_the_tables_rows(
    database: Database, kafka: str, topic_prefix: str, tmp_path: Path, event_format: str
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION p FOR TABLE t")
    database.execute("INSERT INTO t SELECT i, 'there' FROM generate_series(1, 50) i")
    topic = f"{topic_prefix}.public.t"
    create_topic(kafka, topic, partitions=3)
    config = postgres_section(database, snapshot="initial") + kafka_section(kafka, topic_prefix, format=event_format)
    with Service(tmp_path, config) as service:
        service.start()
        _until_done(service)
        assert re.search(r"; snapshot initial-\d+-\d+: done, 50 rows of 1 table\b", service.text("/status"))
        database.execute("DELETE FROM t WHERE id = 50")
        service.until_durable(database)
        assert service.stop() == 0
        database.query("SELECT pg_drop_replication_slot(%s)", f"s_{database.name}")
        database.execute("DELETE FROM t WHERE id <= 5; UPDATE t SET v = 'gap' WHERE id = 6; INSERT INTO t VALUES (60)")
        service.start(wait=False)
        assert service.wait() == 1
        _run_command_of(service)
        service.start()
        _until_done(service)
        database.execute("INSERT INTO t VALUES (3, 'again'); UPDATE t SET v = 'behind' WHERE id = 7")
        service.until_durable(database)
        before = {(record.partition, record.offset) for record in consume(kafka, [topic])}
        keys = _reconcile(service)["keys"]
        assert keys == {"checked": 50, "gone": 4, "superseded": 0, "next": 50, "complete": True}
        assert re.search(r"done, 50 keys looked up, 4 gone, 0 superseded by the stream", service.text("/status"))
        given = [one for one in consume(kafka, [topic]) if (one.partition, one.offset) not in before]
        assert sorted({_id(one.key) for one in given if _is_delete(one)}) == [1, 2, 4, 5]
        assert all(_is_delete(one) for one in given)
        assert _reconcile(service)["keys"]["gone"] == 0
        database.execute("INSERT INTO t VALUES (4, 'once more')")
        service.until_durable(database)
        assert service.stop() == 0
    last = {record.key: record for record in consume(kafka, [topic])}
    left = sorted(_id(key) for key, record in last.items() if key is not None and not _is_delete(record))
    assert left == [number for (number,) in database.query("SELECT id FROM t ORDER BY id")]


def _until_done(service: Service) -> None:
    def is_done() -> bool:
        snapshots = service.stats().get("source.db1", {}).get("snapshots", [])
        return bool(snapshots) and all(one["state"] == "done" for one in snapshots)

    service.until(is_done, "the snapshot to be done")


def _run_command_of(service: Service) -> None:
    """The command that the service's message names, as it stands there."""
    found = re.search(r"\(psql-streamer (snapshot start --source db1 --accept-gap [^)]*)\)", service.tail())
    assert found is not None, service.tail()
    pasted = shlex.split(found[1])
    assert pasted[-2:] == ["-config", str(service.config)]
    _run_pasted(pasted)


def _reconcile(service: Service) -> Any:
    """What the command of the page says at its end."""
    return json.loads(_run(service, ["snapshot", "reconcile", "--table", "public.t", "--json"]))


def _run(service: Service, arguments: list[str]) -> str:
    return _run_pasted([*arguments, "-config", str(service.config)])


def _run_pasted(arguments: list[str]) -> str:
    command = [sys.executable, "-m", "psql_streamer", *arguments]
    done = subprocess.run(command, timeout=60, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _id(key: str | bytes | None) -> int:
    found = json.loads(key or b"")
    return int(found.get("payload", found)["id"])


def _is_delete(record: Any) -> bool:
    """Of all formats: those that name an action do it in a word of their own, flat in a header."""
    if record.value is None:
        return True
    if "op" in record.headers:
        return record.headers["op"] in (b"delete", "delete", b"DELETE", "DELETE")
    value = json.loads(record.value)
    value = value.get("payload", value)
    return value.get("Action") == "delete" or value.get("op") in ("DELETE", "d")
