"""A snapshot reads the rows and columns of a table that the stream would bring, and says why where it may not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pytest
from psycopg2.extensions import make_dsn

from psql_streamer.errors import SourceError
from sources.postgres.snapshot.tables import describe_shape, find_refusal
from tests.database import Database
from tests.snapshot_reading import Reader, Row, reading, texts
from tests.source_at_work import read_all, streaming

TABLES = """
CREATE TABLE plain (id int PRIMARY KEY, kind text, note text);
CREATE TABLE "odd.table" ("a ""b"" c" int PRIMARY KEY, "%s" text, "where" text);
CREATE TABLE parent (id int PRIMARY KEY, v int);
CREATE TABLE child (more int) INHERITS (parent);
CREATE TABLE keyless (v int);
CREATE TABLE top (id int, at int, v int, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE TABLE low PARTITION OF top FOR VALUES FROM (0) TO (10) PARTITION BY LIST (id);
CREATE TABLE low_1 PARTITION OF low FOR VALUES IN (1, 2, 3);
CREATE TABLE high (v int, gone int, at int NOT NULL, id int NOT NULL);
ALTER TABLE high DROP gone;
ALTER TABLE top ATTACH PARTITION high FOR VALUES FROM (10) TO (20);
CREATE TABLE computed (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED);
"""

ROWS = """
INSERT INTO plain SELECT i, CASE i % 3 WHEN 0 THEN 'a' WHEN 1 THEN 'b' END, 'note ' || i FROM generate_series(1, 20) i;
INSERT INTO "odd.table" VALUES (1, '%', ''), (2, NULL, 'x');
INSERT INTO parent VALUES (1, 1);
INSERT INTO child VALUES (2, 2, 2);
INSERT INTO keyless VALUES (1), (1), (NULL);
INSERT INTO top SELECT i % 3 + 1, i, i FROM generate_series(0, 19) i;
INSERT INTO computed VALUES (1), (2);
"""

PUBLICATIONS = {
    "all tables": (14, ["FOR ALL TABLES"]),
    "all tables, partitions by their root": (14, ["FOR ALL TABLES WITH (publish_via_partition_root)"]),
    "some tables": (14, ['FOR TABLE plain, "odd.table", ONLY parent, keyless']),
    "a root, without it": (14, ["FOR TABLE top"]),
    "a root in the middle": (14, ["FOR TABLE low, high WITH (publish_via_partition_root)"]),
    "a leaf in one and the root in the other": (
        14,
        ["FOR TABLE low_1", "FOR TABLE top WITH (publish_via_partition_root)"],
    ),
    "a schema": (15, ["FOR TABLES IN SCHEMA public"]),
    "a schema, by root": (15, ["FOR TABLES IN SCHEMA public WITH (publish_via_partition_root)"]),
    "a filter": (15, ["FOR TABLE plain WHERE (id > 5), keyless WHERE (v = 1)"]),
    "a filter that is null for some rows": (15, ["FOR TABLE plain WHERE (kind = 'a' OR kind <> 'b')"]),
    "two filters": (15, ["FOR TABLE plain WHERE (id > 15)", "FOR TABLE plain WHERE (kind = 'a')"]),
    "a filter in one of two": (15, ["FOR TABLE plain WHERE (id > 15)", "FOR TABLE plain"]),
    "a filter beside all tables": (15, ["FOR TABLE plain WHERE (id > 15)", "FOR ALL TABLES"]),
    "a filter beside the schema": (15, ["FOR TABLE plain WHERE (id > 15)", "FOR TABLES IN SCHEMA public"]),
    "a filter within the schema": (15, ["FOR TABLES IN SCHEMA public, TABLE plain WHERE (id > 15)"]),
    "a filter that one of two needs for updates alone": (
        15,
        ["FOR TABLE plain WHERE (id > 15)", "FOR TABLE plain WITH (publish = 'delete, truncate')"],
    ),
    "a filter of the root, by root": (15, ["FOR TABLE top WHERE (at > 5) WITH (publish_via_partition_root)"]),
    "a filter of a leaf": (15, ["FOR TABLE low_1 WHERE (at > 5), top"]),
    "a filter of a leaf beside the root": (
        15,
        ["FOR TABLE low_1 WHERE (at > 5)", "FOR TABLE top WITH (publish_via_partition_root)"],
    ),
    "filters of the root and of a leaf": (
        15,
        ["FOR TABLE top WHERE (at > 5), low_1 WHERE (at < 3) WITH (publish_via_partition_root)"],
    ),
    "a column list": (15, ["FOR TABLE plain (note, id), low_1 (v, at, id)"]),
    "a column list and a filter by another column": (15, ["FOR TABLE plain (id, note) WHERE (kind = 'a')"]),
    "a column list without the key": (15, ["FOR TABLE plain (note), low_1 (v, id) WITH (publish = 'insert')"]),
    "a column list of the root": (15, ["FOR TABLE top (id, at) WITH (publish_via_partition_root)"]),
    "generated columns": (18, ["FOR TABLE computed WITH (publish_generated_columns = stored)"]),
    "generated columns in a list": (18, ["FOR TABLE computed (id, twice)"]),
}


def snapshot_of(reader: Reader, *publications: str) -> dict[tuple[str, ...], list[Row]]:
    return {
        (table.relation.table, *(column.name for column in table.relation.columns)): sorted(reader.rows(table), key=str)
        for table in reader.tables(*publications).values()
    }


@pytest.mark.behaviour("N10")
@pytest.mark.parametrize("case", PUBLICATIONS)
def test_n10_the_rows_and_columns_are_those_of_the_stream(either_postgres: Database, case: str) -> None:
    database = either_postgres
    since, definitions = PUBLICATIONS[case]
    if database.version < since:
        pytest.skip(f"PostgreSQL {since} brought it")
    database.execute(TABLES)
    names = [f"p{at}" for at in range(len(definitions))]
    for name, definition in zip(names, definitions, strict=True):
        database.execute(f"CREATE PUBLICATION {name} {definition}")
    streamed: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    with streaming(database, publication=names) as source, reading(database) as reader:
        told = {table.relation.table: table.relation for table in reader.tables(*names).values()}
        assert not any(snapshot_of(reader, *names).values())
        database.execute(ROWS)
        for batch in read_all(source, database):
            for change in batch.changes:
                relation = change.relation
                assert [(c.name, c.key, c.type.typmod) for c in told[relation.table].columns] == [  # type: ignore[union-attr]
                    (c.name, c.key, c.type.typmod)  # type: ignore[union-attr]
                    for c in relation.columns
                ]
                columns = map(texts, change.after.columns)
                streamed[relation.table, *(c.name for c in relation.columns)] += zip(*columns, strict=True)
        read = snapshot_of(reader, *names)
    assert {shape: rows for shape, rows in read.items() if rows} == {
        shape: sorted(rows, key=str) for shape, rows in streamed.items()
    }


@pytest.mark.behaviour("N10")
def test_n10_a_table_alone_is_described_as_among_all(every_postgres: Database) -> None:
    database = every_postgres
    database.execute(TABLES)
    database.execute(ROWS)
    database.execute(
        "CREATE PUBLICATION p FOR TABLE plain, low_1, keyless, computed;"
        "CREATE PUBLICATION q FOR TABLE top WITH (publish_via_partition_root); ANALYZE"
    )
    with reading(database) as reader:
        tables = reader.tables("p", "q")
        assert sorted(tables) == ["computed", "keyless", "plain", "top"]
        for table in tables.values():
            assert describe_shape(reader.session, table.oid, ["p", "q"], lambda _: None) == table
        assert [tables[name].estimated_rows for name in ("plain", "top", "keyless")] == [20, 20, 3]
        leaf = database.value("SELECT 'low_1'::regclass::oid::int")
        assert describe_shape(reader.session, leaf, ["p", "q"], lambda _: None) is None
        assert describe_shape(reader.session, leaf, ["p"], lambda _: None) is not None
        database.execute("ALTER TABLE plain DROP note; ALTER TABLE keyless RENAME TO renamed; DROP TABLE computed")
        changed = [describe_shape(reader.session, tables[name].oid, ["p"], lambda _: None) for name in tables]
    assert [found and (found.relation.table, len(found.relation.columns)) for found in changed] == [
        None,
        ("renamed", 1),
        ("plain", 2),
        None,
    ]


def test_a_table_that_was_never_analysed_has_no_estimate(database: Database) -> None:
    database.execute(TABLES + "CREATE PUBLICATION p FOR TABLE plain, top WITH (publish_via_partition_root)")
    with reading(database) as reader:
        assert [table.estimated_rows for table in reader.tables().values()] == [None, None]
        database.execute("INSERT INTO top VALUES (1, 1, 1); ANALYZE low_1")
        assert [table.estimated_rows for table in reader.tables().values()] == [None, 1]


@pytest.mark.parametrize(
    ("definition", "key"),
    [
        ("a int PRIMARY KEY, b int", ["a"]),
        ("a int, b int, PRIMARY KEY (b, a)", ["b", "a"]),
        ("a int, b int, PRIMARY KEY (a) INCLUDE (b)", ["a"]),
        ("a int UNIQUE NOT NULL, b int", []),
        ("a int UNIQUE, b int", []),
        ("a int PRIMARY KEY DEFERRABLE, b int", []),
    ],
)
def test_the_key_is_the_replica_identity_in_the_order_of_its_index(
    database: Database, definition: str, key: list[str]
) -> None:
    database.execute(f"CREATE TABLE t ({definition}); CREATE PUBLICATION p FOR TABLE t")
    with reading(database) as reader:
        table = reader.tables()["t"]
    assert [table.relation.columns[part.column].name for part in table.key] == key
    assert sorted(part.column for part in table.key) == list(table.relation.key_columns)


@pytest.mark.parametrize(
    ("identity", "key"),
    [("FULL", ["id"]), ("NOTHING", []), ("USING INDEX other", ["b", "a"]), ("DEFAULT", ["id"])],
)
def test_the_key_follows_replica_identity(database: Database, identity: str, key: list[str]) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a int NOT NULL, b int NOT NULL);"
        "CREATE UNIQUE INDEX other ON t (b DESC, a NULLS FIRST);"
        f"ALTER TABLE t REPLICA IDENTITY {identity}; CREATE PUBLICATION p FOR TABLE t"
    )
    with reading(database) as reader:
        table = reader.tables()["t"]
    assert [table.relation.columns[part.column].name for part in table.key] == key


def test_a_key_of_which_the_publication_leaves_a_part_out_is_none(database: Database) -> None:
    if database.version < 15:
        pytest.skip("column lists came with PostgreSQL 15")
    database.execute("CREATE TABLE t (a int, b int, v int, PRIMARY KEY (a, b))")
    database.execute("CREATE PUBLICATION p FOR TABLE t (a, v) WITH (publish = 'insert')")
    with reading(database) as reader:
        table = reader.tables()["t"]
    assert table.key == ()
    assert table.relation.key_columns == (0,)


ROLE = "snapshot_reader"


@pytest.fixture
def guarded(database: Database) -> Iterator[Database]:
    """A table of each sort that a role without rights meets, and the role, who is in the DSN of `as_role`."""
    database.execute(
        f"""
        CREATE ROLE {ROLE} LOGIN;
        GRANT USAGE ON SCHEMA public TO {ROLE};
        CREATE SCHEMA closed; CREATE TABLE closed.inside (id int PRIMARY KEY);
        CREATE TABLE granted (id int PRIMARY KEY, v text); GRANT SELECT ON granted TO {ROLE};
        CREATE TABLE refused (id int PRIMARY KEY, v text);
        CREATE TABLE partly (id int PRIMARY KEY); GRANT SELECT (id) ON partly TO {ROLE};
        CREATE TABLE policed (id int PRIMARY KEY); GRANT SELECT ON policed TO {ROLE};
        CREATE POLICY few ON policed USING (id > 5); ALTER TABLE policed ENABLE ROW LEVEL SECURITY;
        CREATE TABLE of_root (id int PRIMARY KEY) PARTITION BY RANGE (id); GRANT SELECT ON of_root TO {ROLE};
        CREATE TABLE of_leaf PARTITION OF of_root FOR VALUES FROM (0) TO (9);
        CREATE TABLE empty (); GRANT SELECT ON granted TO {ROLE};
        CREATE PUBLICATION p FOR TABLE closed.inside, granted, refused, partly, policed, of_root, empty
            WITH (publish_via_partition_root);
        """
    )
    yield database
    database.execute(f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}")


def as_role(database: Database) -> Database:
    return Database(database.name, make_dsn(database.dsn, user=ROLE), database.version)


@pytest.mark.behaviour("N11")
def test_n11_what_the_role_may_not_read_is_said_with_the_grant_to_run(guarded: Database) -> None:
    with reading(as_role(guarded)) as reader:
        tables = reader.tables()
        found = {name: find_refusal(reader.session, table) for name, table in tables.items()}
        assert found == {
            "inside": (
                f"role {ROLE} may not use the schema of closed.inside",
                f"GRANT USAGE ON SCHEMA closed TO {ROLE}",
            ),
            "granted": None,
            "refused": (
                f"role {ROLE} may not read public.refused",
                f'GRANT SELECT ON "public"."refused" TO {ROLE}',
            ),
            "partly": (
                f"role {ROLE} may not read public.partly",
                f'GRANT SELECT ON "public"."partly" TO {ROLE}',
            ),
            "policed": (
                f"row-level security of public.policed hides rows from role {ROLE}",
                f"ALTER ROLE {ROLE} BYPASSRLS, or read as the table's owner",
            ),
            "of_root": None,
            "empty": (
                f"role {ROLE} may not read public.empty",
                f'GRANT SELECT ON "public"."empty" TO {ROLE}',
            ),
        }
        for name, table in tables.items():
            if found[name] is None:
                assert reader.rows(table) == []
            else:
                with pytest.raises(SourceError):
                    reader.rows(table)


@pytest.mark.behaviour("N11")
def test_n11_the_grants_and_remedies_that_are_named_are_enough(guarded: Database) -> None:
    guarded.execute(f"GRANT SELECT ON closed.inside TO {ROLE}")
    with reading(as_role(guarded)) as reader:
        for table in reader.tables().values():
            refused = find_refusal(reader.session, table)
            if refused:
                guarded.execute(refused[1].partition(", or ")[0])
    with reading(as_role(guarded)) as reader:
        for table in reader.tables().values():
            assert find_refusal(reader.session, table) is None
            assert reader.rows(table) == []


@pytest.mark.behaviour("N11")
def test_n11_a_table_whose_inserts_and_updates_are_not_published_is_refused(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t WITH (publish = 'delete')")
    with reading(database) as reader:
        refused = find_refusal(reader.session, reader.tables()["t"])
    assert refused is not None
    assert refused[0] == "no publication streams inserts or updates of public.t"
