"""Columns and tables of PostgreSQL's, as tests make them."""

from __future__ import annotations

from psql_streamer.model import Column, Relation, ReplicaIdentity
from psql_streamer.pgtype import PgType, PostgresType


def postgres_column(name: str, oid: int, typmod: int = -1, key: bool = False, known: PgType | None = None) -> Column:
    return Column(name, PostgresType(oid, typmod, known), key)


def postgres_table(
    oid: int, schema: str, table: str, identity: ReplicaIdentity, columns: tuple[Column, ...], version: int = 1
) -> Relation:
    return Relation(str(oid), schema, table, columns, identity, version)
