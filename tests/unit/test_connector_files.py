"""`translate`: configurations of Debezium's connectors as configuration files of this service, which accept them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tomli

from psql_streamer.cli import BAD_CONFIGURATION, OK, main
from psql_streamer.config import load
from psql_streamer.connector_files.names import translate_expression, translate_keys
from psql_streamer.connector_files.reading import read_options
from psql_streamer.connector_files.translation import translate_connector
from psql_streamer.errors import ConfigError

ENVIRON = {"PG_PASSWORD": "geheim", "MYSQL_PASSWORD": "geheim"}
POSTGRES = {"connector.class": "io.debezium.connector.postgresql.PostgresConnector"}
MYSQL = {"connector.class": "io.debezium.connector.mysql.MySqlConnector"}
MINIMAL = POSTGRES | {
    "database.hostname": "db.example",
    "database.user": "streamer",
    "database.password": "geheim",
    "database.dbname": "shop",
    "topic.prefix": "shop",
}
PAGE = Path(__file__).parents[2] / "docs" / "migrating" / "debezium.md"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "connector.json"


def translated(
    capsys: pytest.CaptureFixture[str], file: Path, options: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """What the command prints: the file, which the service accepts, and its comments."""
    file.write_text(json.dumps({"name": "shop-connector", "config": options}))
    assert main(["translate", str(file)]) == OK
    text = capsys.readouterr().out
    made = file.with_suffix(".toml")
    made.write_text(text)
    load(made, ENVIRON)
    return tomli.loads(text), [line.removeprefix("# - ") for line in text.splitlines() if line.startswith("# - ")]


def test_a_connector_for_postgresql_is_read_from_its_slot_into_its_topics(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    found, notes = translated(
        capsys,
        file,
        MINIMAL
        | {
            "database.port": "5433",
            "database.sslmode": "verify-full",
            "slot.name": "dbz_shop",
            "slot.failover": "true",
            "publication.name": "pub",
            "snapshot.mode": "no_data",
            "table.exclude.list": "public.audit,tmp\\..*,public\\.x_[0-9]+",
            "column.exclude.list": "public.users.password",
            "message.key.columns": "public.lines:order_id,line;public\\.(a|b):id",
            "provide.transaction.metadata": "true",
            "exactly.once.support": "required",
            "topic.creation.default.partitions": "4",
            "topic.creation.default.cleanup.policy": "compact",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "tombstones.on.delete": "true",
            "decimal.handling.mode": "precise",
            "heartbeat.interval.ms": 1000,
            "tasks.max": 1,
        },
    )
    assert notes == []
    assert found["source"]["shop"] == {
        "type": "postgres",
        "dsn": "host=db.example port=5433 dbname=shop user=streamer password=${PG_PASSWORD} sslmode=verify-full",
        "publication": "pub",
        "replicationSlot": "dbz_shop",
        "slotFailover": True,
        "snapshot": "never",
    }
    assert found["sink"]["kafka"] == {
        "type": "kafka",
        "sources": ["shop"],
        "hosts": ["${KAFKA_BROKERS:-localhost:9092}"],
        "topicPrefix": "shop",
        "format": "debezium",
        "debeziumSchemas": True,
        "excludeTables": ["public.audit", "tmp.*", "/^(?:public\\.x_[0-9]+)$/"],
        "excludeColumns": ["public.users.password"],
        "key": {"public.lines": ["order_id", "line"], "/^(?:public\\.(a|b))$/": ["id"]},
        "debeziumTransactions": True,
        "transactionTopic": "shop.transaction",
        "exactlyOnce": True,
        "transactionalId": "shop-cdc",
        "handlers": ["passthrough"],
        "createTopics": {"partitions": 4, "config": {"cleanup.policy": "compact"}},
    }


def test_a_connector_for_mysql_reads_its_databases_or_tables(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    options = MYSQL | {
        "database.hostname": "db.example",
        "database.user": "streamer",
        "database.password": "geheim",
        "database.ssl.mode": "verify_ca",
        "database.include.list": "shop,crm",
        "topic.prefix": "shop",
        "snapshot.mode": "never",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "schema.history.internal.kafka.topic": "history",
    }
    found, notes = translated(capsys, file, options)
    assert notes == []
    assert found["source"]["shop"]["dsn"] == "mysql://streamer:${MYSQL_PASSWORD}@db.example:3306/?ssl-mode=VERIFY_CA"
    assert found["source"]["shop"]["tables"] == ["shop.*", "crm.*"]
    assert found["sink"]["kafka"]["debeziumSchemas"] is False
    found, _ = translated(capsys, file, options | {"table.include.list": "shop.orders"})
    assert found["source"]["shop"]["tables"] == ["shop.orders"]


def test_a_converter_for_avro_is_the_format_with_its_registry(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    found, _ = translated(
        capsys,
        file,
        MINIMAL
        | {
            "value.converter": "io.confluent.connect.avro.AvroConverter",
            "value.converter.schema.registry.url": "http://r1:8081,http://r2:8081",
            "value.converter.auto.register.schemas": "false",
            "value.converter.value.subject.name.strategy": "io.confluent.kafka.serializers.subject.RecordNameStrategy",
        },
    )
    sink = found["sink"]["kafka"]
    assert sink["format"] == "debezium-avro"
    assert sink["formatOptions"] == {
        "registry": {"url": ["http://r1:8081", "http://r2:8081"]},
        "autoRegister": False,
        "subject": "record",
    }


def test_debezium_servers_properties_are_read_as_well(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text(
        "# a comment\n"
        "debezium.sink.type=kafka\n"
        "debezium.sink.kafka.producer.bootstrap.servers=k1:9092,k2:9092\n"
        "debezium.sink.kafka.producer.key.serializer=org.apache.kafka.common.serialization.StringSerializer\n"
        "debezium.source.connector.class=io.debezium.connector.postgresql.PostgresConnector\n"
        "debezium.source.database.hostname = db.example\n"
        "debezium.source.database.password: geheim\n"
        "debezium.source.topic.prefix=my-shop.1\n"
        "debezium.source.table.exclude.list=public\\\\.audit,\\\n    public.other\n"
        "debezium.source.snapshot.mode=never\n"
        "debezium.format.value=json\n"
        "debezium.format.schemas.enable=false\n"
        "quarkus.log.level=INFO\n"
    )
    assert main(["translate", str(file)]) == OK
    found = tomli.loads(capsys.readouterr().out)
    assert found["source"].keys() == {"my-shop.1"}
    sink = found["sink"]["kafka"]
    assert (sink["sources"], sink["hosts"]) == (["my-shop.1"], ["k1:9092", "k2:9092"])
    assert sink["excludeTables"] == ["public.audit", "public.other"]
    assert sink["debeziumSchemas"] is False


def test_what_has_no_place_is_told_with_the_reason_and_without_values(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    secret = "hunter-of-many-characters"
    _, notes = translated(
        capsys,
        file,
        MINIMAL
        | {
            "snapshot.mode": "when_needed",
            "decimal.handling.mode": "double",
            "transforms": "route",
            "transforms.route.type": secret,
            "table.include.list": "public.orders",
            "producer.override.sasl.jaas.config": secret,
            "producer.override.compression.type": secret,
            "database.sslpassword": secret,
            "no.such.option": secret,
        },
    )
    told = {note.partition(":")[0] for note in notes}
    assert told == {
        "snapshot",
        "snapshot.mode",
        "decimal.handling.mode",
        "transforms",
        "transforms.route.type",
        "table.include.list",
        "producer.override.compression.type",
        "database.sslpassword",
        "no.such.option",
        "value.converter",
    }
    made = file.with_suffix(".toml").read_text()
    assert secret not in made
    assert "geheim" not in made


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("{", "is no JSON (line 1)"),
        ("{}", "has no connector.class"),
        ('{"config": 5}', "its `config` is no object"),
        ("a=b\n", "has no connector.class"),
        ('{"connector.class": "io.debezium.connector.oracle.OracleConnector"}', "is for another database"),
    ],
)
def test_a_file_that_cannot_be_translated_is_told(
    capsys: pytest.CaptureFixture[str], file: Path, content: str, what: str
) -> None:
    file.write_text(content)
    assert main(["translate", str(file)]) == BAD_CONFIGURATION
    assert what in capsys.readouterr().err


def test_a_file_that_is_not_there_or_is_no_text_is_told(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    assert main(["translate", str(file)]) == BAD_CONFIGURATION
    assert f"{file}: No such file" in capsys.readouterr().err
    file.write_bytes(b"\xff\xfe")
    assert main(["translate", str(file)]) == BAD_CONFIGURATION
    assert "is no text in UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("expression", "entry"),
    [
        ("public.orders", "public.orders"),
        ("public\\.orders", "public.orders"),
        ("public\\..*", "public.*"),
        ("public.*", "public.*"),
        ("(.*).visits", "/^(?:(.*).visits)$/"),
        ("public\\.t[0-9]", "/^(?:public\\.t[0-9])$/"),
    ],
)
def test_expressions_for_names_are_entries(expression: str, entry: str) -> None:
    assert translate_expression(expression) == entry


def test_columns_of_keys_are_those_of_each_table() -> None:
    assert list(translate_keys("a.b:x, y;(.*).c:z;")) == [("a.b", ["x", "y"]), ("/^(?:(.*).c)$/", ["z"])]


def test_every_option_of_the_page_is_known() -> None:
    """Each becomes something, has a reason why it does not, or is needed by nobody."""
    table = PAGE.read_text().partition("| Debezium, PostgreSQL | here |")[2].partition("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    named = [option for cell in cells for option in re.findall(r"`([^`]+)`", cell)]
    options = [option for option in named if "." in option and option != "database.*"]
    assert len(options) > 50
    for option in options:
        name = option.replace("...", ".x").replace(".*", ".x").replace("..", ".")
        found = translate_connector(POSTGRES | {"provide.transaction.metadata": "true", name: "1"})
        assert f"{name}: has nothing in its place" not in found.notes, name


def test_options_may_stand_alone_without_a_name() -> None:
    assert read_options(json.dumps(MINIMAL), "f") == MINIMAL
    with pytest.raises(ConfigError, match=r"f: is no JSON"):
        read_options("{" * 100_000, "f")
