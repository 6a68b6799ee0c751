"""Keys that are looked up while rows come and go and the service is killed: the topic folds to the table's rows."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.beside import run_beside
from tests.database import Database
from tests.kafka_reader import Record, consume
from tests.kafka_sinks import create_topic
from tests.sections import kafka_section, postgres_section
from tests.service import Service

_KEYS = 40_000


@pytest.mark.slow
@pytest.mark.behaviour("N40")
def test_a_service_killed_while_keys_are_looked_up_sends_deletes_for_those_that_are_gone_and_no_others(
    database: Database, kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION p FOR TABLE t")
    topic = f"{topic_prefix}.public.t"
    create_topic(kafka, topic, partitions=2)
    keys = tmp_path / "keys.jsonl"
    keys.write_text("".join(f'{{"id":{number}}}\n' for number in range(_KEYS)))
    with Service(tmp_path, postgres_section(database) + kafka_section(kafka, topic_prefix)) as service:
        service.start()
        database.execute("INSERT INTO t SELECT i, 'there' FROM generate_series(0, 39999, 7) i")
        with _writing(database), _reconciling(service, keys) as command:
            for least in (2_000, 12_000):
                service.until(lambda least=least: _is_past(service, command, least), f"more than {least} keys")
                service.kill()
                service.start()
            out, _ = command.communicate(timeout=120)
        assert command.returncode == 0, out
        shown = json.loads(out[out.index("{") :])["keys"]
        assert (shown["checked"], shown["complete"]) == (_KEYS, True)
        service.until_durable(database)
        assert service.stop() == 0
    alive = _fold(consume(kafka, [topic]))
    assert sorted(alive) == [number for (number,) in database.query("SELECT id FROM t ORDER BY id")]


def _fold(records: list[Record]) -> set[int]:
    """The keys whose rows are there at the end."""
    alive: set[int] = set()
    deletes = 0
    for record in records:
        event: Any = json.loads(record.value or b"")
        number = event["Columns"]["id"]
        if event["Action"] == "delete" and "Snapshot" in event:
            assert number not in alive, f"a delete of {number}, which the stream has"
            deletes += 1
        elif event["Action"] == "delete":
            alive.discard(number)
        else:
            alive.add(number)
    assert deletes > _KEYS // 2
    return alive


@contextmanager
def _writing(database: Database) -> Iterator[None]:
    """Rows that come and go, all over the keys."""

    def write(ends: threading.Event) -> None:
        chance = random.Random(7)
        with database.session(autocommit=True) as session, session.cursor() as cursor:
            while not ends.wait(0.002):
                number = chance.randrange(_KEYS)
                if chance.random() < 0.6:
                    cursor.execute("INSERT INTO t VALUES (%s, 'came') ON CONFLICT DO NOTHING", (number,))
                else:
                    cursor.execute("DELETE FROM t WHERE id BETWEEN %s AND %s", (number, number + 20))

    with run_beside(write):
        yield


@contextmanager
def _reconciling(service: Service, keys: Path) -> Iterator[subprocess.Popen[str]]:
    arguments = ["snapshot", "reconcile", "--table", "public.t", "--keys", str(keys), "--json"]
    command = [sys.executable, "-m", "psql_streamer", *arguments, "-config", str(service.config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _is_past(service: Service, command: subprocess.Popen[str], least: int) -> bool:
    assert command.poll() is None, f"the command has ended: {command.communicate()[0]}"
    return _checked(service) > least


def _checked(service: Service) -> int:
    snapshots = service.stats().get("source.db1", {}).get("snapshots", [])
    return max((one["keys"]["checked"] for one in snapshots if "keys" in one), default=0)
