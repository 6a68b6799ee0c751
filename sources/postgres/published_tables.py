"""The tables of publications, as the catalog has them now: what a stream's Relation messages would say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from psql_streamer.model import Column, Relation, ReplicaIdentity
from psql_streamer.pgtype import PgType, PostgresType
from sources.postgres.catalog import Session

# attnames: a publication's column list, else all columns that are published; it came with PostgreSQL 15. Before that
# a stream has every column that is not generated.
_COLUMN_LISTS = 150000
_PUBLISHED = """
    SELECT DISTINCT c.oid, n.nspname::text, c.relname::text, c.relreplident::text, a.attnum, a.attname::text,
        a.atttypid::bigint, a.atttypmod, coalesce(a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]), false)
    FROM pg_catalog.pg_publication_tables t
    JOIN pg_catalog.pg_namespace n ON n.nspname = t.schemaname
    JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
    LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND {listed}
    LEFT JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND CASE c.relreplident
        WHEN 'd' THEN i.indisprimary AND i.indimmediate  -- a deferrable primary key is no identity
        WHEN 'f' THEN i.indisprimary
        WHEN 'i' THEN i.indisreplident
        ELSE false
    END
    WHERE t.pubname = ANY (%s)
    ORDER BY 2, 3, 5
"""
_LISTED = {True: "a.attname = ANY (t.attnames)", False: "a.attgenerated = ''"}


def published_tables(
    session: Session, publications: Sequence[str], resolve: Callable[[int], PgType | None]
) -> list[Relation]:
    """The tables, by schema and name. resolve: what a type's OID stands for.

    A partitioned table stands for itself or by its partitions, as publish_via_partition_root has it.
    """
    listed = _LISTED[int(session.setting("server_version_num")) >= _COLUMN_LISTS]
    rows = session.rows(_PUBLISHED.format(listed=listed), list(publications))
    return [_relation(list(of_table), resolve) for _, of_table in groupby(rows, key=lambda row: row[0])]


def _relation(rows: list[tuple[Any, ...]], resolve: Callable[[int], PgType | None]) -> Relation:
    oid, schema, table, identity, *_ = rows[0]
    replica_identity = ReplicaIdentity(ord(identity))
    columns = tuple(
        Column(name, PostgresType(type_oid, typmod, resolve(type_oid)), key)
        for *_, number, name, type_oid, typmod, key in rows
        if number is not None
    )
    return Relation(str(oid), schema, table, columns, replica_identity)
