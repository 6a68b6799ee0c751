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


_NEWER_FACTS = ("membership", "partitions", "file", "files")
"""Those of an order that older versions did not store."""


class KnownPartitions:
    """Which partitions roots had when they were read, or before, since the process began."""

    def __init__(self) -> None:
        self._known: dict[str, dict[int, Part]] = {}

    def note_first(self, table: SnapshotTable) -> None:
        """Those of a table of which nothing was read before."""
        self._known[table.order] = {part.oid: part for part in table.parts}

    def find_new(self, order: str, table: SnapshotTable) -> Sequence[Part] | None:
        """The partitions of a table that it did not have when rows were read in an order of SnapshotTable.order.

        None where nobody knows, where one was detached or written anew meanwhile, or where the order itself is another
        one.
        """
        now = table.order
        before = self._known.get(order)
        # Those that are gone may come back.
        self._known[now] = {**(before or {}), **{part.oid: part for part in table.parts}}
        if find_facts(order, of_partitions=False) != find_facts(now, of_partitions=False, like=order):
            return None
        written_anew = self.was_written_anew(order, table)
        if not written_anew and (order == now or not _differ("partitions", order, now)):
            return ()
        if before is None or written_anew or self.were_detached(order, table):
            return None
        return [part for part in table.parts if part.oid not in before]

    def were_detached(self, order: str, table: SnapshotTable) -> bool:
        """Whether some of a table's partitions may have been others' since rows were read in an order."""
        if not _differ("partitions", order, table.order):
            return False
        known = self._known.get(order)
        return known is None or any(known.get(part.oid, part).attached != part.attached for part in table.parts)

    def was_written_anew(self, order: str, table: SnapshotTable) -> bool:
        """Whether a table, or one of its partitions, may have been since rows were read in an order."""
        if not _differ("files", order, table.order):
            return _differ("file", order, table.order)
        known = self._known.get(order)
        return known is None or any(known.get(part.oid, part).file != part.file for part in table.parts)


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


def find_facts(order: str, *, of_partitions: bool, like: str = "") -> list[Any]:
    """What an order says. like: an order that an older version may have stored, which said less."""
    lacking = [] if not like else [name for name in _NEWER_FACTS if not has_fact(like, name)]
    left_out = [*lacking, *(() if of_partitions else ("partitions", "files"))]
    return [one for one in json.loads(order) if not (isinstance(one, dict) and any(name in one for name in left_out))]


def has_fact(order: str, name: str) -> bool:
    """Whether an order says something of its table beside its key and filter."""
    return any(isinstance(one, dict) and name in one for one in json.loads(order))


def find_fact(order: str, name: str) -> Any:
    """What an order says of it; None where it says nothing."""
    return next((one[name] for one in json.loads(order) if isinstance(one, dict) and name in one), None)


def _differ(name: str, before: str, now: str) -> bool:
    """Whether two orders say other things of a fact; no where an older version stored nothing of it."""
    return has_fact(before, name) and find_fact(before, name) != find_fact(now, name)
