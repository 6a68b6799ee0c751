"""The primary keys of tables with REPLICA IDENTITY FULL, whose Relation messages do not tell."""

from __future__ import annotations

from psql_streamer.model import Relation
from sources.catalog import Catalog, Session

_QUERY = """
    SELECT c.oid, array_agg(a.attname::text) FILTER (WHERE a.attname IS NOT NULL)
    FROM pg_catalog.pg_class c
    LEFT JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND i.indisprimary
    LEFT JOIN pg_catalog.pg_attribute a
        ON a.attrelid = c.oid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
"""
_ALL = _QUERY + "WHERE c.relreplident = 'f' GROUP BY c.oid"
_ONE = _QUERY + "WHERE c.oid = %s GROUP BY c.oid"


class PrimaryKeys:
    """Names of primary key columns. All are asked for at once at the start; the server sends a Relation message again
    when something about the table has changed, which may be its key, so from the second on each asks again.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._at_start: dict[int, tuple[str, ...]] = {}

    def load(self, session: Session) -> None:
        """Take the keys of all tables that have identity FULL now."""
        self._at_start = {oid: tuple(names or ()) for oid, names in session.rows(_ALL)}

    def of(self, relation: Relation) -> tuple[str, ...]:
        """The key's columns; none for a table without one, or that is gone. SourceUnavailable when nobody answers."""
        known = self._at_start.pop(relation.oid, None)
        if known is not None:
            return known
        with self._catalog.session() as session:
            return next((tuple(names or ()) for _, names in session.rows(_ONE, relation.oid)), ())
