"""Sections of configuration files, for services that tests start."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.database import Database
from tests.mariadb import Schema


def postgres_section(database: Database, **more: Any) -> str:
    """Source db1: publication p, a slot named after the database, no snapshot. more: keys besides, or instead."""
    keys = {
        "type": "postgres",
        "dsn": database.dsn,
        "publication": "p",
        "replicationSlot": f"s_{database.name}",
        "snapshot": "never",
    }
    return _section("source.db1", keys | more)


def mysql_section(schema: Schema, **more: Any) -> str:
    """Source db1: the tables of a schema, no snapshot. more: keys besides, or instead."""
    keys = {"type": "mysql", "dsn": schema.dsn, "tables": [f"{schema.name}.*"], "snapshot": "never"}
    return _section("source.db1", keys | more)


def kafka_section(kafka: str, topic_prefix: str, name: str = "k", **more: Any) -> str:
    """A sink for source db1, without Spark. more: keys besides, or instead."""
    keys = {
        "type": "kafka",
        "sources": ["db1"],
        "hosts": [kafka],
        "topicPrefix": topic_prefix,
        "handlers": ["passthrough"],
    }
    return _section(f"sink.{name}", keys | more)


def topics_section(kafka: str, topics: Sequence[str], group: str, **more: Any) -> str:
    """Source hop: these topics. more: keys besides, or instead."""
    return _section("source.hop", {"type": "kafka", "hosts": [kafka], "topics": topics, "groupID": group} | more)


def _section(name: str, keys: dict[str, Any]) -> str:
    return "\n".join([f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in keys.items()), ""])


def _toml(value: Any) -> str:
    # What JSON writes of strings, numbers, lists and booleans is TOML.
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)
