"""The events of a table's new shape, and of a statement that gave it one: the same in every format."""

from __future__ import annotations

import json
from typing import Any, assert_never

from psql_streamer import __version__
from psql_streamer.events.source_fields import choose_fields
from psql_streamer.model import ArrowType, Batch, ColumnType, Relation, SchemaChange, TableStatement, TextType
from psql_streamer.pgtype import PostgresType
from psql_streamer.pgtypes.names import name_type


def render_schema_change_key(change: SchemaChange | TableStatement) -> bytes:
    """`{"schema":...,"table":...}`: a compacted topic keeps the last shape of every table."""
    return _render_json({"schema": change.relation.schema, "table": change.relation.table})


def render_schema_change(change: SchemaChange, batch: Batch) -> bytes:
    """`{schema, table, op, before, after, source}`; before is null for a table that the source has not met yet.

    The source's commit and seq are of the first change in the new shape: a Relation message has no LSN of its own.
    """
    return _render_json(
        {
            "schema": change.relation.schema,
            "table": change.relation.table,
            "op": "SCHEMA",
            "before": None if change.before is None else _describe_shape(change.before),
            "after": _describe_shape(change.relation),
            "source": _describe_source(change, batch),
        }
    )


def render_table_statement(statement: TableStatement, batch: Batch) -> bytes:
    """`{schema, table, op, statement, before, after, source}`; before is null for a table that the source has not met,
    and after is: the table's next row shows what it is like now.
    """
    relation = statement.relation
    return _render_json(
        {
            "schema": relation.schema,
            "table": relation.table,
            "op": "DDL",
            "statement": statement.text,
            "before": _describe_shape(relation) if relation.columns else None,
            "after": None,
            "source": _describe_source(statement, batch),
        }
    )


def _describe_source(what: SchemaChange | TableStatement, batch: Batch) -> dict[str, Any]:
    of, tx, source = batch.transactions, what.tx, batch.source
    return {
        "version": __version__,
        "connector": "psql-streamer",
        "name": source.name,
        "db": source.database,
        "ts_ms": int(of.commit_ts[tx]) // 1000,
        **choose_fields(source).describe_transaction(of, tx),
        "seq": what.seq,
    }


def _describe_shape(relation: Relation) -> dict[str, Any]:
    return {
        **_describe_id(relation),
        "schema": relation.schema,
        "table": relation.table,
        **({} if relation.replica_identity is None else {"replica_identity": relation.replica_identity.name}),
        "columns": [
            {"name": column.name, **_describe_type(column.type), "key": column.key} for column in relation.columns
        ],
    }


def _describe_id(relation: Relation) -> dict[str, Any]:
    """PostgreSQL knows tables by number."""
    return {"id": relation.id} if relation.replica_identity is None else {"oid": int(relation.id)}


def _describe_type(kind: ColumnType) -> dict[str, Any]:
    match kind:
        case PostgresType():
            return {"type": name_type(kind), "type_oid": kind.oid, "typmod": kind.typmod}
        case TextType():
            return {"type": kind.native}
        case ArrowType():
            return {"type": kind.native or str(kind.arrow)}
        case _:
            assert_never(kind)


def _render_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
