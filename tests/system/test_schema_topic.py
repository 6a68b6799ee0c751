"""The topic of new shapes, with a service that is stopped and killed."""

from __future__ import annotations

import json
from pathlib import Path

from tests.database import Database
from tests.kafka_reader import consume
from tests.sections import kafka_section, postgres_section
from tests.service import Service


def test_shapes_are_remembered_over_a_restart_and_over_a_kill(
    database: Database, kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR ALL TABLES")
    sink = kafka_section(kafka, topic_prefix, schemaTopic=f"{topic_prefix}.schemas")
    config = postgres_section(database) + sink
    with Service(tmp_path, config) as service:
        service.start()
        database.execute("INSERT INTO t VALUES (1)")
        service.until_durable(database)
        assert service.stop() == 0
        database.execute("INSERT INTO t VALUES (2)")
        database.execute("ALTER TABLE t ADD note text")
        database.execute("INSERT INTO t VALUES (3)")
        service.start()
        service.until_durable(database)
        service.kill()
        database.execute("INSERT INTO t VALUES (4)")
        service.start()
        service.until_durable(database)
        assert service.stop() == 0

    told = [json.loads(record.value or b"") for record in consume(kafka, [f"{topic_prefix}.schemas"])]
    shapes = [
        [
            None if shape is None else [column["name"] for column in shape["columns"]]
            for shape in (one["before"], one["after"])
        ]
        for one in told
    ]
    assert shapes == [[None, ["id"]], [["id"], ["id", "note"]]]
    assert len(consume(kafka, [f"{topic_prefix}.public.t"])) == 4
