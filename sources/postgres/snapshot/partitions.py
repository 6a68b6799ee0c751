"""Partitions that are attached while their root is read: their rows are not streamed, and some of them may lie in front
of the key that was read up to.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from psycopg2.extensions import connection as Connection  # noqa: N812 - a class

from sources.postgres.catalog import Session
from sources.postgres.snapshot.copying import read_chunk
from sources.postgres.snapshot.tables import Part, SnapshotTable

# Rights on a root are enough to read it, and partitions may have none of their own.
_ROWS_AND_RIGHTS = """
SELECT pg_relation_size(c.oid) > 0,
    has_schema_privilege(c.relnamespace, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
        AND NOT row_security_active(c.oid)
FROM pg_catalog.pg_class c WHERE c.oid = %s
"""


class KnownPartitions:
    """Which partitions roots had when they were read, since the process began."""

    def __init__(self) -> None:
        self._known: dict[str, frozenset[int]] = {}

    def find_new(self, order: str, table: SnapshotTable) -> Sequence[Part] | None:
        """The partitions of a table that it did not have when rows were read in an order of SnapshotTable.order.

        None where nobody knows, or where the order itself is another one.
        """
        now = table.order
        self._known[now] = frozenset(part.oid for part in table.parts)
        if _without_partitions(order) != _without_partitions(now):
            return None
        if order == now or not _has_partitions(order):  # an older version stored none
            return ()
        known = self._known.get(order)
        return None if known is None else [part for part in table.parts if part.oid not in known]


def may_have_rows_before(
    connection: Connection, session: Session, table: SnapshotTable, part: Part, after: Sequence[str]
) -> bool:
    """Whether rows of a partition lie in front of a key of its root, or at it. after: as read_chunk has it."""
    ((has_rows, may_be_read),) = session.read_rows(_ROWS_AND_RIGHTS, part.oid)
    if not has_rows or not may_be_read:
        return bool(has_rows)
    relation = replace(table.relation, schema=part.schema, table=part.table)
    alone = replace(table, relation=relation, only=True, row_filter="")
    first, behind = (_read_row(connection, alone, place) for place in (None, after))
    return first != behind


def _read_row(connection: Connection, table: SnapshotTable, after: Sequence[str] | None) -> list[Any]:
    """The first row behind a place."""
    return [column.to_pylist() for column in read_chunk(connection, table, after, "", 1).columns]


def _without_partitions(order: str) -> list[Any]:
    return [one for one in json.loads(order) if not isinstance(one, dict)]


def _has_partitions(order: str) -> bool:
    return isinstance(json.loads(order)[-1], dict)
