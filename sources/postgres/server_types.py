"""The types of a source's database that are not built in, asked of its catalog."""

from __future__ import annotations

from collections.abc import Iterator

from psql_streamer.pgtype import PgType
from psql_streamer.pgtypes.catalog import TypeCatalog, TypeRow
from sources.postgres.catalog import Catalog, Session
from sources.postgres.server_of_stream import ServerOfStream

_COLUMNS = """
    SELECT t.oid, t.typname, t.typtype, t.typarray, coalesce(element.oid, 0), t.typdelim, t.typbasetype, t.typtypmod,
        attribute.names, attribute.types, attribute.typmods,
        ARRAY(SELECT enumlabel::text FROM pg_catalog.pg_enum WHERE enumtypid = t.oid ORDER BY enumsortorder)
    FROM pg_catalog.pg_type t
    LEFT JOIN pg_catalog.pg_type element ON element.oid = t.typelem AND element.typarray = t.oid
    LEFT JOIN pg_catalog.pg_class row ON row.oid = coalesce(nullif(t.typrelid, 0), nullif(element.typrelid, 0))
    LEFT JOIN LATERAL (
        SELECT array_agg(attname::text ORDER BY attnum) AS names,
            array_agg(atttypid::bigint ORDER BY attnum) AS types, array_agg(atttypmod ORDER BY attnum) AS typmods
        FROM pg_catalog.pg_attribute WHERE attrelid = t.typrelid AND attnum > 0 AND NOT attisdropped
    ) attribute ON t.typtype = 'c'
"""

# OIDs from 10000 on are assigned in each database anew (PostgreSQL source, src/include/access/transam.h,
# FirstGenbkiObjectId). The row types of tables are left for the day when somebody uses one as a column's type.
_ALL = _COLUMNS + "WHERE t.oid >= 10000 AND t.typtype <> 'p' AND (row.oid IS NULL OR row.relkind = 'c')"
_SOME = _COLUMNS + "WHERE t.oid = ANY (%s)"


class ServerTypes:
    """What the OIDs of types stand for. Every OID is asked for once, so that a later ALTER TYPE, which the catalog
    shows before its rows come, changes nothing in rows that are older.
    """

    def __init__(self, catalog: Catalog | ServerOfStream) -> None:
        self._catalog = catalog
        self._types = TypeCatalog()
        self._unknown: set[int] = set()

    def load(self, session: Session) -> None:
        """Take all types that the database has now."""
        self._types.add(_read_type_rows(session, _ALL))

    def resolve(self, oid: int) -> PgType | None:
        """The type; None for one that was dropped before it was asked for. Asks the server for what is not known yet:
        SourceUnavailable when it does not answer, or another one does."""
        while missing := self._types.find_missing(oid) - self._unknown:
            with self._catalog.open_session() as session:
                self._types.add(_read_type_rows(session, _SOME, sorted(missing)))
            self._unknown |= missing & self._types.find_missing(oid)
        return self._types.resolve(oid)


def _read_type_rows(session: Session, query: str, *parameters: object) -> Iterator[TypeRow]:
    for (
        oid,
        name,
        kind,
        array_oid,
        element_oid,
        delimiter,
        base_oid,
        base_typmod,
        *attributes,
        labels,
    ) in session.read_rows(query, *parameters):
        names, types, typmods = (column or () for column in attributes)
        yield TypeRow(
            oid,
            name,
            kind,
            array_oid,
            element_oid,
            delimiter,
            base_oid,
            base_typmod,
            tuple(zip(names, types, typmods, strict=True)),
            tuple(labels),
        )
