"""The primary keys of tables with REPLICA IDENTITY FULL, whose Relation messages do not tell."""

from __future__ import annotations

from collections.abc import Sequence

from psql_streamer.pgoutput.full_identity import Asked, CatalogKey
from psql_streamer.pgoutput.messages import parse_oid
from sources.postgres.catalog import Catalog
from sources.postgres.server_of_stream import ServerOfStream

# A primary key's index has a row of pg_index, made or last changed by the transaction in its xmin. age() counts
# transactions back from now, so what is older has the greater age. An index that was dropped leaves no trace.
_QUERY = """
    SELECT c.oid IS NULL, i.names, coalesce(i.age <= age(asked.xid::text::xid), false)
    FROM unnest(%s::bigint[], %s::bigint[]) WITH ORDINALITY asked(oid, xid, place)
    LEFT JOIN pg_catalog.pg_class c ON c.oid = asked.oid
    LEFT JOIN LATERAL (
        SELECT min(age(i.xmin)) AS age, array_agg(a.attname::text ORDER BY a.attnum) AS names
        FROM pg_catalog.pg_index i
        JOIN pg_catalog.pg_attribute a
            ON a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
        WHERE i.indrelid = c.oid AND i.indisprimary
    ) i ON true
    ORDER BY asked.place
"""


class PrimaryKeys:
    """Asks the catalog of a source's database, once for all tables of a block."""

    def __init__(self, catalog: Catalog | ServerOfStream) -> None:
        self._catalog = catalog

    def ask(self, asked: Sequence[Asked]) -> Sequence[CatalogKey]:
        """See full_identity.AskKeys. SourceUnavailable when nobody answers, or another server."""
        with self._catalog.open_session() as session:
            rows = session.read_rows(
                _QUERY, [parse_oid(question.relation) for question in asked], [question.xid for question in asked]
            )
        return [CatalogKey(None if gone else tuple(names or ()), newer) for gone, names, newer in rows]
