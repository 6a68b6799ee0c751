"""The tables of publications as they are read: the rows and columns that the stream has of them, and their keys.

How a partition is published, by which publications' filters and lists: PostgreSQL source, get_rel_sync_entry in
pgoutput.c; PostgreSQL documentation, "Row Filters" and "Column Lists".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from psql_streamer.model import Column, Relation, ReplicaIdentity
from psql_streamer.pgtype import PgType, PostgresType
from psql_streamer.snapshot.changed_keys import describe_key
from sources.postgres.catalog import Session
from sources.postgres.identifiers import quote_identifier

_FILTERS_AND_LISTS, _GENERATED_COLUMNS = 150000, 180000
"""The releases (server_version_num) that brought row filters, column lists and FOR TABLES IN SCHEMA, and generated
columns in the stream."""

# It takes time in proportion to the tables. What it computes of each has such a high estimate that the planner takes
# other paths for equal, also one that compares each table with all others, if they are sorted: so there is no ORDER BY.
# IN is looked up in a hash table in a SELECT list, and joined, partition by partition, in WHERE.
# A partition is streamed as the topmost of the tables above it that a publication streams with
# publish_via_partition_root, and then only that publication's filters and lists count.
_TABLES = """
WITH given AS (
    SELECT %s::text[] AS publications, %s::bigint::oid AS oid
), publication AS (
    SELECT p.oid, p.xmin::text AS version, p.puballtables, p.pubviaroot, p.pubinsert OR p.pubupdate AS rows,
        p.pubinsert AS inserts, p.pubupdate AS updates, p.pubdelete AS deletes, p.pubtruncate AS truncates,
        {stored} AS stored
    FROM given JOIN pg_catalog.pg_publication p ON p.pubname = ANY (given.publications)
), member AS (
    SELECT r.prpubid AS publication, r.prrelid AS relation FROM pg_catalog.pg_publication_rel r
    {in_schemas}
), asked AS (
    SELECT c.oid, c.relkind, c.relispartition FROM pg_catalog.pg_class c
    WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND c.oid >= 16384 AND {asked}
), published AS (
    SELECT a.oid, a.relkind, a.relispartition, p.oid AS publication, p.puballtables, p.rows, p.inserts, p.updates,
        p.deletes, p.truncates, p.stored
    FROM asked a CROSS JOIN publication p
    CROSS JOIN LATERAL (
        SELECT p.puballtables OR (p.oid, a.oid) IN (SELECT publication, relation FROM member) AS itself,
            CASE WHEN a.relispartition THEN p.puballtables OR coalesce((
                SELECT bool_or((p.oid, up.relid) IN (SELECT publication, relation FROM member))
                FROM pg_catalog.pg_partition_ancestors(a.oid) up WHERE up.relid <> a.oid
            ), false) ELSE false END AS above
    ) listed
    WHERE CASE a.relkind WHEN 'p' THEN p.pubviaroot AND itself AND NOT above
        ELSE (itself OR above) AND NOT (p.pubviaroot AND above) END
), streamed AS (
    SELECT t.oid, bool_or(t.rows) AS rows, bool_or(t.inserts) AND bool_or(t.updates) AS all_rows,
        array_remove(ARRAY[
            CASE WHEN NOT bool_or(t.inserts) THEN 'inserts' END, CASE WHEN NOT bool_or(t.updates) THEN 'updates' END,
            CASE WHEN NOT bool_or(t.deletes) THEN 'deletes' END, CASE WHEN NOT bool_or(t.truncates) THEN 'truncates' END
        ], NULL) AS unstreamed, {details}
    FROM published t LEFT JOIN pg_catalog.pg_publication_rel r ON r.prpubid = t.publication AND r.prrelid = t.oid
    WHERE CASE WHEN t.relispartition THEN NOT EXISTS (
        SELECT FROM pg_catalog.pg_partition_ancestors(t.oid) up
        WHERE up.relid <> t.oid AND up.relid = ANY (ARRAY(SELECT oid FROM published WHERE relkind = 'p'))
    ) ELSE true END
    GROUP BY t.oid
)
SELECT c.oid, n.nspname::text, c.relname::text, c.relreplident::text, c.relkind::text, s.rows, s.all_rows,
    s.unstreamed, s.filters,
    (SELECT array_agg(ARRAY[a.attnum::text, a.attname::text, a.atttypid::bigint::text, a.atttypmod::text]
        ORDER BY a.attnum)
     FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND (
        s.listed IS NULL AND (a.attgenerated = '' OR s.stored AND a.attgenerated = 's')
        OR a.attnum = ANY (string_to_array(s.listed, ' ')::int2[]))),
    (SELECT array_agg(ARRAY[k.attnum::text, k.option::text,
        (SELECT format('%%I.%%I', cn.nspname, co.collname) FROM pg_catalog.pg_collation co
         JOIN pg_catalog.pg_namespace cn ON cn.oid = co.collnamespace WHERE co.oid = k.coll),
        (SELECT format('%%I.%%I', tn.nspname, ty.typname) FROM pg_catalog.pg_type ty
         JOIN pg_catalog.pg_namespace tn ON tn.oid = ty.typnamespace WHERE ty.oid = {base}),
        coalesce((SELECT co.collisdeterministic FROM pg_catalog.pg_collation co WHERE co.oid = k.coll), true)::text,
        {less}, {equal}, {greater}, {labels}, {inside}] ORDER BY k.place)
     FROM unnest((i.indkey::int2[])[0:i.indnkeyatts - 1], (i.indoption::int2[])[0:i.indnkeyatts - 1],
        (i.indcollation::oid[])[0:i.indnkeyatts - 1], (i.indclass::oid[])[0:i.indnkeyatts - 1])
        WITH ORDINALITY AS k(attnum, option, coll, class, place)
     JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
     JOIN pg_catalog.pg_opclass of_index ON of_index.oid = k.class
     LEFT JOIN pg_catalog.pg_opclass oc ON CASE WHEN of_index.opcmethod = {btree} THEN oc.oid = of_index.oid
        ELSE oc.opcmethod = {btree} AND oc.opcdefault AND oc.opcintype = of_index.opcintype END),
    CASE c.relkind WHEN 'r' THEN ARRAY[
        ARRAY[n.nspname::text, c.relname::text, c.relkind::text, c.reltuples::text, c.relpages::text, c.oid::text, '',
            {file_of_c}]]
    ELSE (
        SELECT array_agg(ARRAY[of.nspname::text, part.relname::text, part.relkind::text, part.reltuples::text,
            part.relpages::text, part.oid::text, (
                SELECT string_agg(up.xmin::text, ' ' ORDER BY up.inhrelid) FROM pg_catalog.pg_inherits up
                JOIN pg_catalog.pg_partition_ancestors(part.oid) above ON above.relid = up.inhrelid
            ), {file_of_part}] ORDER BY of.nspname, part.relname)
        FROM {tree} tree JOIN pg_catalog.pg_class part ON part.oid = tree.oid
        JOIN pg_catalog.pg_namespace of ON of.oid = part.relnamespace WHERE part.relkind <> 'p'
    ) END,
    {membership}
FROM streamed s
JOIN pg_catalog.pg_class c ON c.oid = s.oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND CASE c.relreplident
    WHEN 'd' THEN i.indisprimary AND i.indimmediate  -- a deferrable primary key is no identity
    WHEN 'f' THEN i.indisprimary
    WHEN 'i' THEN i.indisreplident
    ELSE false
END
WHERE {chosen}
"""
# Another one when ALTER TABLE has written the rows anew, as SET UNLOGGED and SET LOGGED do. VACUUM FULL, CLUSTER and
# TRUNCATE keep the OID of the TOAST table (PostgreSQL source, finish_heap_swap in cluster.c); of a table without one
# nothing tells them apart.
_FILE = "CASE {0}.reltoastrelid WHEN 0 THEN {0}.relfilenode ELSE {0}.reltoastrelid END::text"
# What is written anew when a table leaves its publications, or when these are altered, though it is all as before
# afterwards. `asked` has the table and those above it.
_MEMBERSHIP = """(SELECT string_agg(fact, ' ' ORDER BY fact) FROM (
        SELECT 'p' || p.oid || ':' || p.version FROM publication p WHERE p.oid IN (
            SELECT publication FROM published WHERE oid = c.oid)
        UNION ALL SELECT 'r' || r.oid FROM pg_catalog.pg_publication_rel r
        WHERE r.prrelid IN (SELECT oid FROM asked) AND r.prpubid IN (SELECT oid FROM publication)
        UNION ALL SELECT 'i' || i.xmin FROM pg_catalog.pg_inherits i
        WHERE c.relispartition AND i.inhrelid IN (SELECT oid FROM asked)
        {schemas}
    ) facts(fact))"""
_SCHEMAS_OF_MEMBERSHIP = """UNION ALL SELECT DISTINCT 's' || s.oid || ':' || d.xmin
        FROM pg_catalog.pg_publication_namespace s JOIN pg_catalog.pg_depend d ON d.refobjid = s.pnnspid
        WHERE s.pnpubid IN (SELECT oid FROM publication) AND d.refclassid = 'pg_catalog.pg_namespace'::regclass
            AND d.classid = 'pg_catalog.pg_class'::regclass AND d.objid IN (SELECT oid FROM asked)"""
_ONE = """c.oid = ANY (ARRAY(
        SELECT oid FROM given UNION ALL SELECT relid FROM given, pg_catalog.pg_partition_ancestors(given.oid)
    ))"""
_IN_SCHEMAS = """UNION
    SELECT s.pnpubid, c.oid FROM pg_catalog.pg_publication_namespace s
    JOIN pg_catalog.pg_class c ON c.relnamespace = s.pnnspid"""
# A table of a publication's schema has no filter there, whatever filter its own membership has. Lists of one table are
# the same in all publications, or the server refuses to stream it.
_DETAILS = """bool_or(t.stored) AS stored,
        CASE WHEN bool_and(r.prattrs IS NOT NULL) THEN string_agg(r.prattrs::text, ' ') END AS listed,
        CASE WHEN bool_and(r.prqual IS NOT NULL AND NOT t.puballtables AND (t.publication, t.oid) NOT IN (
            SELECT s.pnpubid, c.oid FROM pg_catalog.pg_publication_namespace s
            JOIN pg_catalog.pg_class c ON c.relnamespace = s.pnnspid
        )) FILTER (WHERE t.rows) THEN array_agg(DISTINCT {filter}) FILTER (WHERE t.rows)
        END AS filters"""
_FILTER = "pg_catalog.pg_get_expr(r.prqual, t.oid)"
_NO_DETAILS = "false AS stored, NULL::text AS listed, NULL::text[] AS filters"
# The type that a key's values are compared as: a domain's checks are nothing to a bound of a range.
_BASE = """(WITH RECURSIVE base(oid, of) AS (
            SELECT ty.oid, ty.typbasetype FROM pg_catalog.pg_type ty WHERE ty.oid = a.atttypid
            UNION ALL SELECT ty.oid, ty.typbasetype FROM base JOIN pg_catalog.pg_type ty ON ty.oid = base.of
        ) SELECT oid FROM base WHERE of = 0)"""
# Renaming a value of an enum makes another text of it, and may give its text to another value.
_LABELS = """(SELECT json_agg(e.enumlabel ORDER BY e.enumsortorder)::text
         FROM pg_catalog.pg_type ty LEFT JOIN pg_catalog.pg_enum e ON e.enumtypid = ty.oid
         WHERE ty.oid = {base} AND ty.typtype = 'e')"""
# What the texts of arrays, ranges and rows mean depends on the types that are in them; those of money on a setting.
_INSIDE = """(WITH RECURSIVE inside(oid) AS (
            SELECT {base}
            UNION SELECT below.oid FROM inside JOIN pg_catalog.pg_type ty ON ty.oid = inside.oid CROSS JOIN LATERAL (
                SELECT ty.typbasetype WHERE ty.typtype = 'd'
                UNION ALL SELECT ty.typelem WHERE ty.typelem <> 0
                UNION ALL SELECT r.rngsubtype FROM pg_catalog.pg_range r WHERE ty.oid IN (r.rngtypid, r.rngmultitypid)
                UNION ALL SELECT at.atttypid FROM pg_catalog.pg_attribute at
                    WHERE ty.typtype = 'c' AND at.attrelid = ty.typrelid AND at.attnum > 0 AND NOT at.attisdropped
            ) below(oid)
        ) SELECT json_agg(meaning ORDER BY oid)::text FROM (
            SELECT inside.oid, json_agg(e.enumlabel ORDER BY e.enumsortorder) AS meaning FROM inside
                JOIN pg_catalog.pg_enum e ON e.enumtypid = inside.oid WHERE inside.oid <> {base} GROUP BY inside.oid
            UNION ALL SELECT inside.oid, to_json(current_setting('lc_monetary')) FROM inside
                WHERE inside.oid = 'pg_catalog.money'::regtype
        ) found)"""
# pg_partition_tree() waits for the locks of the partitions. Which are being detached, PostgreSQL 14 and later say.
PARTITION_TREE = """(WITH RECURSIVE tree(oid) AS (
            SELECT {} UNION ALL SELECT below.inhrelid FROM tree JOIN pg_catalog.pg_inherits below
                ON below.inhparent = tree.oid JOIN pg_catalog.pg_class child ON child.oid = below.inhrelid
            WHERE child.relispartition
                AND NOT coalesce((pg_catalog.to_jsonb(below) ->> 'inhdetachpending')::bool, false)
        ) SELECT oid FROM tree)"""
"""SQL of a table and of all partitions below it. {}: SQL of its OID."""
# Strategies of B-tree operators: PostgreSQL documentation, "Interfacing Extensions to Indexes".
_OPERATOR = """(SELECT format('OPERATOR(%%I.%%s)', opn.nspname, op.oprname) FROM pg_catalog.pg_amop ao
         JOIN pg_catalog.pg_operator op ON op.oid = ao.amopopr
         JOIN pg_catalog.pg_namespace opn ON opn.oid = op.oprnamespace
         WHERE ao.amopfamily = oc.opcfamily AND ao.amoplefttype = oc.opcintype
            AND ao.amoprighttype = oc.opcintype AND ao.amopstrategy = {})"""
# The operators of the access method `btree` alone are an order: a key WITHOUT OVERLAPS has an index of another one, and
# its rows are sorted by the order that their types have of themselves.
_BTREE = 403
"""pg_am.oid (PostgreSQL source, pg_am.dat)."""
_WITH_DIGITS = ("numeric", "bpchar")
"""Types whose values have another text under another modifier: 1.0 and 1.00, `a ` and `a  `."""
NO_KEY = (
    "has neither a primary key nor another replica identity, or a DEFERRABLE one: nothing tells its rows from others",
    "give it a primary key; without one a table is read at the first start of a slot only",
)
"""What a table is, and the remedy."""
_USUAL_LESS = "OPERATOR(pg_catalog.<)"
_DESCENDING, _NULLS_FIRST = 1, 2
"""Bits of pg_index.indoption."""


_NAMES_OF_OBJECTS = tuple(
    f"reg{kind}"
    for kind in (
        *("class", "collation", "config", "database", "dictionary", "namespace", "oper", "operator", "proc"),
        *("procedure", "role", "type"),
    )
)
"""Types whose texts are names of the catalog: what was renamed has another one, and what is overloaded shares one."""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of the index that a table's key is.

    column: index into the relation's columns. type: SQL of the type that its values are compared as. collation: SQL,
    empty where the type has none. deterministic: whether texts that differ are never equal by it. less, equal,
    greater: SQL of the operators of the index. labels: JSON of the values of an enum in their order, else empty.
    inside: JSON of what the texts of its values depend on beside that, empty for nothing.
    """

    column: int
    type: str
    collation: str
    descending: bool
    nulls_first: bool
    deterministic: bool
    less: str
    equal: str
    greater: str
    labels: str
    inside: str

    @property
    def is_name(self) -> bool:
        """Whether its values are objects of the catalog, and their texts the names that these have at the time."""
        return self.built_in_type in _NAMES_OF_OBJECTS

    @property
    def built_in_type(self) -> str:
        """The name of its type as the catalog has it, without quotes; empty where it is none of PostgreSQL's own."""
        schema, _, name = self.type.partition(".")
        return name.strip('"') if schema == "pg_catalog" else ""

    def describe_order(self) -> tuple[str | bool, ...]:
        """What the order of its values depends on, and what their texts mean."""
        # What few keys have is told of these alone, so that what was stored of the others before stays true.
        meaning = self.labels or self.inside
        rest = () if (self.less, meaning) == (_USUAL_LESS, "") else (self.less, meaning)
        return (self.type, self.collation, self.descending, self.nulls_first, *rest)


@dataclass(frozen=True, slots=True)
class Part:
    """A table that holds rows: a plain one or a partition. pages: how many it had when it was analysed.

    attached: another one when it, or a table between it and its root, was detached and attached again. file: another
    one when its rows were written anew, as by SET UNLOGGED.
    """

    oid: int
    schema: str
    table: str
    pages: int
    foreign: bool
    attached: str = ""
    file: str = ""

    @property
    def name(self) -> str:
        """SQL of its name."""
        return _quote_name(self.schema, self.table)


@dataclass(frozen=True, slots=True)
class SnapshotTable:
    """A table as its publications stream it.

    relation: what the stream's Relation message says of it. only: whether its rows are its own (FROM ONLY), or those of
    its partitions. row_filter: SQL, empty where a publication streams all rows. estimated_rows: None where it was never
    analysed. key: in the order of its index; empty where the table has none, or the publication leaves a part of it
    out. parts: what holds its rows. rows_are_streamed: whether a publication streams its inserts or updates.
    all_rows_are_streamed: whether publications stream both. missing_key: why it has no key: what, and the remedy.
    unstreamed: which of inserts, updates, deletes and truncates no publication streams.
    membership: another one when it was out of its publications meanwhile, or these were altered; of describe_shape.
    """

    relation: Relation
    only: bool
    row_filter: str
    estimated_rows: int | None
    key: tuple[KeyColumn, ...]
    parts: tuple[Part, ...]
    rows_are_streamed: bool
    all_rows_are_streamed: bool
    missing_key: tuple[str, str] | None
    unstreamed: tuple[str, ...] = field(default=(), compare=False)
    membership: str = field(default="", compare=False)  # list_snapshot_tables does not ask for it

    @property
    def oid(self) -> int:
        """pg_class.oid."""
        return int(self.relation.id)

    @property
    def order(self) -> str:
        """The order in which its rows are read, as JSON: the columns of its key, what its index makes of them, the row
        filter if there is one, what tells its partitions from others if it has some, whether its rows were written
        anew, and as what it is streamed.

        Where that is another one, a key that was read up to says nothing of what is left; for partitions see
        KnownPartitions.
        """
        names = [
            (self.relation.columns[one.column].name, *one.describe_order(), *self._describe_digits(one))
            for one in self.key
        ]
        filters = [self.row_filter] if self.row_filter else []
        streamed = {"name": [self.relation.schema, self.relation.table], "membership": _hash(self.membership)}
        return json.dumps([describe_key(self.relation), names, *filters, *self._describe_parts(), streamed])

    def _describe_parts(self) -> list[dict[str, str]]:
        """Short, as there may be thousands of them and positions have it."""
        if self.only:
            return [{"file": part.file} for part in self.parts]
        return [
            {"partitions": _hash(" ".join(sorted(f"{part.oid}:{part.attached}" for part in self.parts)))},
            {"files": _hash(" ".join(sorted(f"{part.oid}:{part.file}" for part in self.parts)))},
        ]

    def _describe_digits(self, column: KeyColumn) -> tuple[int, ...]:
        """The modifier of a type whose texts depend on it; nothing of a column without one."""
        of = self.relation.columns[column.column].type
        if not isinstance(of, PostgresType) or of.typmod < 0:
            return ()
        return (of.typmod,) if column.built_in_type.lstrip("_") in _WITH_DIGITS else ()

    @property
    def name(self) -> str:
        """SQL of its name."""
        return _quote_name(self.relation.schema, self.relation.table)


Resolve = Callable[[int], PgType | None]
"""What a type's OID stands for."""


def list_snapshot_tables(
    session: Session, publications: Sequence[str], resolve: Resolve, *, filters: bool = True
) -> list[SnapshotTable]:
    """The tables of publications, by schema and name. filters: see describe_shape.

    A partitioned table stands for itself or by its partitions, as publish_via_partition_root has it.
    """
    return _ask(session, publications, resolve, None, filters)


def describe_shape(
    session: Session, oid: int, publications: Sequence[str], resolve: Resolve, *, filters: bool = True
) -> SnapshotTable | None:
    """The table as it is now; None when it is gone, or these publications do not stream it under its own name.

    filters: whether the row filter is looked up, for which the server waits for the table's lock; it is empty else.
    """
    found = _ask(session, publications, resolve, oid, filters)
    return found[0] if found else None


def _ask(
    session: Session, publications: Sequence[str], resolve: Resolve, oid: int | None, filters: bool
) -> list[SnapshotTable]:
    query = _build_query(session.server_version, one=oid is not None, filters=filters)
    read = session.read_rows if oid is None else session.read_prepared_rows
    rows = read(query, list(publications), oid)
    return [_make_table(row, resolve) for row in sorted(rows, key=_read_name)]


def _read_name(row: tuple[Any, ...]) -> tuple[str, str]:
    _, schema, table, *_ = row
    return schema, table


@cache
def _build_query(version: int, *, one: bool, filters: bool) -> str:
    with_lists = version >= _FILTERS_AND_LISTS
    return _TABLES.format(
        stored="p.pubgencols = 's'" if version >= _GENERATED_COLUMNS else "false",
        asked=_ONE if one else "true",
        chosen="c.oid = (SELECT oid FROM given)" if one else "true",
        in_schemas=_IN_SCHEMAS if with_lists else "",
        membership=_MEMBERSHIP.format(schemas=_SCHEMAS_OF_MEMBERSHIP if with_lists else "") if one else "''",
        details=_DETAILS.format(filter=_FILTER if filters else "NULL::text") if with_lists else _NO_DETAILS,
        file_of_c=_FILE.format("c"),
        file_of_part=_FILE.format("part"),
        base=_BASE,
        btree=_BTREE,
        labels=_LABELS.format(base=_BASE),
        inside=_INSIDE.format(base=_BASE),
        tree=PARTITION_TREE.format("c.oid"),
        less=_OPERATOR.format(1),
        equal=_OPERATOR.format(3),
        greater=_OPERATOR.format(5),
    )


def _make_table(row: tuple[Any, ...], resolve: Resolve) -> SnapshotTable:
    oid, schema, table, identity, kind, streamed, all_streamed, unstreamed, *more = row
    filters, columns, key, parts, membership = more
    columns, key, parts = columns or [], key or [], parts or []
    place = {number: at for at, (number, *_) in enumerate(columns)}
    keys = {number for number, *_ in key}
    relation = Relation(
        str(oid),
        schema,
        table,
        tuple(
            Column(name, PostgresType(int(type_oid), int(typmod), resolve(int(type_oid))), number in keys)
            for number, name, type_oid, typmod in columns
        ),
        ReplicaIdentity(ord(identity)),
    )
    found = _make_key(key, place) if keys <= place.keys() and all(less for *_, less, _, _, _, _ in key) else ()
    return SnapshotTable(
        relation,
        only=kind == "r",
        row_filter=" OR ".join(f"({condition})" for condition in filters or () if condition),
        estimated_rows=_estimate([float(tuples) for _, _, _, tuples, *_ in parts]),
        key=found,
        parts=tuple(
            Part(int(part), of, name, int(pages), part_kind == "f", attached or "", file)
            for of, name, part_kind, _, pages, part, attached, file in parts
        ),
        rows_are_streamed=bool(streamed),
        all_rows_are_streamed=bool(all_streamed),
        unstreamed=tuple(unstreamed),
        missing_key=None if found else _describe_missing_key(relation, keys, keys <= place.keys()),
        membership=membership or "",
    )


def _describe_missing_key(relation: Relation, key: Collection[str], is_published: bool) -> tuple[str, str]:
    """key: what the index of the replica identity has; empty where there is no index."""
    if key and not is_published:
        return (
            f"a column of the key of {relation} is not published",
            "name it in the publication's column list, or leave the list out (ALTER PUBLICATION ... SET TABLE)",
        )
    name = _quote_name(relation.schema, relation.table)
    remedy = f"ALTER TABLE {name} REPLICA IDENTITY DEFAULT if it has a primary key, else give it one"
    if relation.replica_identity is ReplicaIdentity.NOTHING:
        return f"{relation} has REPLICA IDENTITY NOTHING: nothing tells its rows from those of the stream", remedy
    if relation.replica_identity is ReplicaIdentity.INDEX and not key:
        return f"the index that was the replica identity of {relation} was dropped", remedy
    return f"{relation} {NO_KEY[0]}", NO_KEY[1]


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _quote_name(schema: str, table: str) -> str:
    return f"{quote_identifier(schema)}.{quote_identifier(table)}"


def _make_key(key: Sequence[Sequence[str]], place: dict[str, int]) -> tuple[KeyColumn, ...]:
    return tuple(
        KeyColumn(
            place[number],
            type_name,
            collation or "",
            bool(int(option) & _DESCENDING),
            bool(int(option) & _NULLS_FIRST),
            deterministic == "true",
            less,
            equal,
            greater,
            labels or "",
            inside or "",
        )
        for number, option, collation, type_name, deterministic, less, equal, greater, labels, inside in key
    )


def _estimate(tuples: Sequence[float]) -> int | None:
    """Of all parts together. -1 is of one that was never analysed."""
    known = [int(count) for count in tuples if count >= 0]
    return sum(known) if known or not tuples else None


# Rights on columns alone do not let a role lock a table (PostgreSQL documentation, LOCK), and chunks need its lock.
_RIGHTS = """
SELECT has_schema_privilege(c.relnamespace, 'USAGE'), has_table_privilege(c.oid, 'SELECT'), row_security_active(c.oid),
    format('%%I', current_user), format('%%I', n.nspname)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = %s
"""


# Old rows have the columns of the partition's replica identity, whatever their root's is (PostgreSQL source,
# ExtractReplicaIdentity in heapam.c). Where it has none, the server refuses updates and deletes.
_WITHOUT_ROOTS_KEY = f"""
SELECT n.nspname::text, c.relname::text
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND CASE c.relreplident
    WHEN 'd' THEN i.indisprimary AND i.indimmediate
    WHEN 'i' THEN i.indisreplident
    ELSE false
END
WHERE c.oid IN {PARTITION_TREE.format("%s::bigint::oid")} AND c.relkind = 'r' AND NOT %s::text[] <@ ARRAY(
    SELECT a.attname::text FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = c.oid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
)
ORDER BY 1, 2 LIMIT 1
"""


def find_refusal(session: Session, table: SnapshotTable) -> tuple[str, str] | None:
    """Why the table cannot be read by this role: what, and the remedy; None when it can be, or is gone."""
    relation = table.relation
    if not table.rows_are_streamed:
        return (
            f"no publication streams inserts or updates of {relation}",
            "ALTER PUBLICATION ... SET (publish = 'insert, update, delete, truncate'), or leave the table out",
        )
    foreign = [part.name for part in table.parts if part.foreign]
    if foreign:
        return (
            f"{relation} has the foreign table {foreign[0]} as a partition, whose rows are not in the stream",
            "publish its other partitions themselves, or leave the table out",
        )
    if not table.only and (refused := _find_partition_without_key(session, table)):
        return refused
    rows = session.read_rows(_RIGHTS, table.oid)
    return _find_rights_refusal(relation, table.name, *rows[0]) if rows else None


def _find_partition_without_key(session: Session, table: SnapshotTable) -> tuple[str, str] | None:
    relation = table.relation
    key = [relation.columns[column].name for column in relation.key_columns]
    rows = session.read_rows(_WITHOUT_ROOTS_KEY, table.oid, key)
    if not rows:
        return None
    schema, name = rows[0]
    return (
        f"the partition {schema}.{name} of {relation} has another replica identity: its deletes come without the key",
        f"ALTER TABLE {_quote_name(schema, name)} REPLICA IDENTITY FULL, or USING INDEX one that has the root's key",
    )


def _find_rights_refusal(
    relation: Relation, name: str, usable: bool, readable: bool, row_security: bool, role: str, schema: str
) -> tuple[str, str] | None:
    if not usable:
        return f"role {role} may not use the schema of {relation}", f"GRANT USAGE ON SCHEMA {schema} TO {role}"
    if not readable:
        return f"role {role} may not read {relation}", f"GRANT SELECT ON {name} TO {role}"
    if row_security:
        return (
            f"row-level security of {relation} hides rows from role {role}",
            f"ALTER ROLE {role} BYPASSRLS, or read as the table's owner",
        )
    return None
