"""What a connector's options are here: sections of a configuration file, and what of them has no place there.

Source: Debezium documentation 3.6, "PostgreSQL connector" and "MySQL connector", connector properties.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from psql_streamer.connector_files.names import translate_keys, translate_list
from psql_streamer.connector_files.reading import PRODUCER
from psql_streamer.connector_files.untranslated import NOT_NEEDED, explain_option
from psql_streamer.errors import ConfigError

Section = dict[str, Any]

POSTGRES, MYSQL = "postgres", "mysql"

_KINDS = {"postgresql": POSTGRES, "mysql": MYSQL, "mariadb": MYSQL}

_DEFAULTS = {
    "plugin.name": "pgoutput",
    "tombstones.on.delete": "true",
    "decimal.handling.mode": "precise",
    "time.precision.mode": "adaptive",
    "interval.handling.mode": "numeric",
    "hstore.handling.mode": "json",
    "binary.handling.mode": "bytes",
    "bigint.unsigned.handling.mode": "long",
    "skipped.operations": "none",
    "slot.drop.on.stop": "false",
    "field.name.adjustment.mode": "avro",
    "schema.name.adjustment.mode": "avro",
}
"""Values that an option has here without being set."""

_SNAPSHOTS = {
    "initial": "initial",
    "always": "always",
    "never": "never",
    "no_data": "never",
    "schema_only": "never",
    "when_needed": "initial",
    "initial_only": "initial",
}

_SUBJECTS = {"RecordNameStrategy": "record", "TopicRecordNameStrategy": "topicRecord"}

_ON_SNAPSHOT = 'snapshot: set "never" if the connector has read the rows that were there, and this goes on behind it'

_ON_CONVERTER = (
    "value.converter: that of the worker holds; set debeziumSchemas = true for a JsonConverter with schemas, its "
    'default, and format = "debezium-avro" for an AvroConverter'
)

_OTHER_DATABASES = (
    "logs of PostgreSQL, MySQL and MariaDB are read; a source of type sql polls tables of others, and one of type "
    "kafka reads the topics that the connector writes"
)


@dataclass(slots=True)
class Translation:
    """sections: by their names, in the order of the file. notes: options that are not in them, each with the reason."""

    sections: dict[str, Section] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def translate_connector(options: Mapping[str, str]) -> Translation:
    """ConfigError for a connector of another database."""
    return _Translating(options).translate()


class _Translating:
    """One connector on its way. What is taken is struck off; what is left then is told."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._left = {name: value.strip() for name, value in options.items()}
        self._kind = _find_kind(self._left.pop("connector.class"))
        prefix = self._take("topic.prefix") or self._take("database.server.name") or "shop"
        self._prefix = prefix
        self._source: Section = {"type": self._kind}
        self._sink: Section = {"type": "kafka", "sources": [prefix], "hosts": ["${KAFKA_BROKERS:-localhost:9092}"]}
        self._made = Translation()

    def translate(self) -> Translation:
        """Take everything that has a place."""
        match self._kind:
            case "postgres":
                self._take_postgres()
            case _:
                self._take_mysql()
        self._take_snapshot()
        self._sink["topicPrefix"] = self._prefix
        self._take_format()
        self._take_events()
        self._sink["handlers"] = ["passthrough"]
        sections = self._made.sections
        sections[f"source.{_quote(self._prefix)}"] = self._source
        sections["sink.kafka"] = self._sink
        self._take_topics()
        self._take_producer()
        self._tell_what_is_left()
        return self._made

    def _take(self, name: str) -> str:
        return self._left.pop(name, "")

    def _take_postgres(self) -> None:
        self._take("database.password")
        parts = {
            "host": self._take("database.hostname"),
            "port": self._take("database.port"),
            "dbname": self._take("database.dbname"),
            "user": self._take("database.user"),
            "password": "${PG_PASSWORD}",
            "sslmode": self._take("database.sslmode"),
            "sslrootcert": self._take("database.sslrootcert"),
            "sslcert": self._take("database.sslcert"),
            "sslkey": self._take("database.sslkey"),
        }
        self._source["dsn"] = " ".join(f"{name}={_quote_libpq(value)}" for name, value in parts.items() if value)
        self._source["publication"] = self._take("publication.name") or "dbz_publication"
        self._source["replicationSlot"] = self._take("slot.name") or "debezium"
        if self._take("slot.failover") == "true":
            self._source["slotFailover"] = True
        if self._left.get("table.include.list"):
            tables = ", ".join(translate_list(self._take("table.include.list")))
            self._note("table.include.list", f"the tables of the publication are streamed; they should be {tables}")

    def _take_mysql(self) -> None:
        self._take("database.password")
        host, port = self._take("database.hostname"), self._take("database.port") or "3306"
        mode = self._take("database.ssl.mode").upper()
        query = f"?ssl-mode={mode}" if mode not in ("", "DISABLED", "PREFERRED") else ""
        self._source["dsn"] = f"mysql://{self._take('database.user')}:${{MYSQL_PASSWORD}}@{host}:{port}/{query}"
        tables = translate_list(self._take("table.include.list"))
        databases = [f"{name}.*" for name in translate_list(self._take("database.include.list"))]
        if tables or databases:
            self._source["tables"] = tables or databases
        if number := self._take("database.server.id"):
            self._note("database.server.id", f"a number is made up at each start; serverId = {number} would set it")

    def _take_snapshot(self) -> None:
        mode = self._take("snapshot.mode") or "initial"
        if mode not in _SNAPSHOTS:
            self._note("snapshot.mode", f"{mode} has nothing in its place: see docs/snapshots.md")
        elif mode in ("when_needed", "initial_only"):
            self._note("snapshot.mode", f"{mode} is taken for initial: see docs/snapshots.md")
        # Debezium has sent the rows that were there, if it has run.
        self._source["snapshot"] = _SNAPSHOTS.get(mode, "initial")
        if self._source["snapshot"] == "initial":
            self._made.notes.append(_ON_SNAPSHOT)

    def _take_format(self) -> None:
        converter, schemas = self._take("value.converter"), self._take("value.converter.schemas.enable")
        url = self._take("value.converter.schema.registry.url") or self._take("value.converter.apicurio.registry.url")
        if "avro" in converter.lower():
            self._sink["format"] = "debezium-avro"
            registry: Section = {"url": [one for one in url.split(",") if one] or ["http://localhost:8081"]}
            options: Section = {"registry": registry}
            if self._take("value.converter.auto.register.schemas") == "false":
                options["autoRegister"] = False
            strategy = self._take("value.converter.value.subject.name.strategy").rpartition(".")[2]
            if strategy in _SUBJECTS:
                options["subject"] = _SUBJECTS[strategy]
            self._sink["formatOptions"] = options
            return
        self._sink["format"] = "debezium"
        if "protobuf" in converter.lower():
            self._note("value.converter", 'events are in JSON, or in Avro with format = "debezium-avro"')
        if not converter:
            self._made.notes.append(_ON_CONVERTER)
        in_json = converter.endswith("JsonConverter") or converter == "json"
        self._sink["debeziumSchemas"] = in_json and schemas != "false"  # on by default

    def _take_events(self) -> None:
        if excluded := translate_list(self._take("table.exclude.list")):
            self._sink["excludeTables"] = excluded
        if excluded := translate_list(self._take("column.exclude.list")):
            self._sink["excludeColumns"] = [one for one in excluded if not one.startswith("/")]
            for one in excluded:
                if one.startswith("/"):
                    self._note("column.exclude.list", f"excludeColumns has no regular expressions: {one}")
        if keys := dict(translate_keys(self._take("message.key.columns"))):
            self._sink["key"] = keys
        if self._take("provide.transaction.metadata") == "true":
            self._sink["debeziumTransactions"] = True
            self._sink["transactionTopic"] = f"{self._prefix}.{self._take('topic.transaction') or 'transaction'}"
        if self._take("exactly.once.support") == "required":
            self._sink |= {"exactlyOnce": True, "transactionalId": f"{self._prefix}-cdc"}
        if topic := self._take("errors.deadletterqueue.topic.name"):
            self._sink["deadLetterTopic"] = topic

    def _take_topics(self) -> None:
        settings: Section = {}
        for name, key in (("partitions", "partitions"), ("replication.factor", "replicationFactor")):
            if number := self._take(f"topic.creation.default.{name}"):
                settings[key] = int(number)
        others = {
            name.removeprefix("topic.creation.default."): self._take(name)
            for name in list(self._left)
            if name.startswith("topic.creation.default.")
        }
        if others:
            settings["config"] = others
        if settings:
            self._made.sections["sink.kafka.createTopics"] = settings

    def _take_producer(self) -> None:
        hosts = self._take(f"{PRODUCER}bootstrap.servers")
        if hosts:
            self._sink["hosts"] = [one.strip() for one in hosts.split(",")]
        for name in list(self._left):
            if name.startswith(PRODUCER) and name.endswith((".serializer", ".jaas.config")):
                self._take(name)

    def _tell_what_is_left(self) -> None:
        for name, value in self._left.items():
            why = explain_option(name)
            if _DEFAULTS.get(name) != value and why != NOT_NEEDED:
                self._note(name, why)

    def _note(self, option: str, why: str) -> None:
        self._made.notes.append(f"{option}: {why}")


def _find_kind(connector: str) -> str:
    for word, kind in _KINDS.items():
        if f".{word}." in connector.lower():
            return kind
    raise ConfigError([f"connector.class: {connector} is for another database: {_OTHER_DATABASES}"])


def _quote_libpq(value: str) -> str:
    """A value of a libpq connection string."""
    if re.fullmatch(r"[^\s'\\]+", value):
        return value
    escaped = re.sub(r"(['\\])", r"\\\1", value)
    return f"'{escaped}'"


def _quote(name: str) -> str:
    """A part of a section's name."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"'
