"""What the catalog says of the published tables is what the stream says of them later."""

from __future__ import annotations

import pytest

from psql_streamer.errors import SourceRefused
from psql_streamer.model import Relation
from tests.database import Database
from tests.source_at_work import read_all, source_of, streaming

_TABLES = """
CREATE TYPE mood AS ENUM ('calm', 'happy');
CREATE DOMAIN price AS numeric(12, 2);
CREATE SCHEMA "odd schema";
CREATE TABLE by_default (a int, id int PRIMARY KEY, m mood, p price[]);
CREATE TABLE two_columns (b text, a varchar(10), v int, PRIMARY KEY (a, b) INCLUDE (v));
CREATE TABLE deferred_key (id int PRIMARY KEY DEFERRABLE, v int);
CREATE TABLE with_full (v int, id int PRIMARY KEY);
ALTER TABLE with_full REPLICA IDENTITY FULL;
CREATE TABLE full_without_key (v int, w int);
ALTER TABLE full_without_key REPLICA IDENTITY FULL;
CREATE TABLE with_nothing (id int PRIMARY KEY);
ALTER TABLE with_nothing REPLICA IDENTITY NOTHING;
CREATE TABLE by_index (id int PRIMARY KEY, other int NOT NULL UNIQUE);
ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_other_key;
CREATE TABLE "odd schema"."odd.table" ("ODD name" int PRIMARY KEY);
CREATE TABLE computed (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED);
CREATE TABLE altered (id int PRIMARY KEY, gone int, kept int);
ALTER TABLE altered DROP COLUMN gone;
CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE part_1 PARTITION OF parts FOR VALUES FROM (0) TO (10);
CREATE TABLE left_out (id int);
"""
_ROWS = (
    "INSERT INTO by_default VALUES (1, 1)",
    "INSERT INTO two_columns VALUES ('b', 'a', 1)",
    "INSERT INTO deferred_key VALUES (1, 1)",
    "INSERT INTO with_full VALUES (1, 1)",
    "INSERT INTO full_without_key VALUES (1, 1)",
    "INSERT INTO with_nothing VALUES (1)",
    "INSERT INTO by_index VALUES (1, 1)",
    'INSERT INTO "odd schema"."odd.table" VALUES (1)',
    "INSERT INTO computed VALUES (1)",
    "INSERT INTO altered VALUES (1, 1)",
    "INSERT INTO parts VALUES (1)",
    "INSERT INTO left_out VALUES (1)",
)


def _sorted(relations: list[Relation]) -> list[Relation]:
    return sorted(relations, key=lambda relation: (relation.schema, relation.table))


@pytest.mark.parametrize("via_root", [False, True], ids=["partitions", "root"])
def test_the_catalog_tells_the_shapes_that_the_stream_brings(every_postgres: Database, via_root: bool) -> None:
    database = every_postgres
    database.execute(_TABLES)
    of_partition, others = ("parts" if via_root else "part_1"), "by_default, two_columns, deferred_key, with_full, "
    others += 'full_without_key, with_nothing, by_index, "odd schema"."odd.table", altered'
    computed = "computed (id)" if database.version >= 15 else "computed"
    database.execute(
        f"CREATE PUBLICATION p FOR TABLE {others}, {computed} WITH (publish = 'insert');"
        f"CREATE PUBLICATION q FOR TABLE {of_partition} WITH (publish_via_partition_root = {via_root})"
    )
    with streaming(database, publication=["p", "q"]) as source:
        told = _sorted(list(source.list_published()))
        for insert in _ROWS:
            database.execute(insert)
        streamed = [change.relation for batch in read_all(source, database) for change in batch.changes]
    assert told == _sorted(streamed)
    assert [column.type for one in told for column in one.columns] == [
        column.type for one in _sorted(streamed) for column in one.columns
    ]


def test_a_publication_that_is_missing_is_refused_before_its_tables_are_asked_for(database: Database) -> None:
    with pytest.raises(SourceRefused, match='publication "p" does not exist'):
        source_of(database).list_published()


_PARTITIONED = """
CREATE TABLE top (id int, at int, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE TABLE middle PARTITION OF top FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id);
CREATE TABLE leaf PARTITION OF middle FOR VALUES FROM (0) TO (10);
CREATE TABLE other_leaf PARTITION OF top FOR VALUES FROM (10) TO (20);
"""


@pytest.mark.parametrize(
    ("publications", "expected"),
    [
        (["p FOR ALL TABLES"], ["leaf", "other_leaf"]),
        (["p FOR ALL TABLES WITH (publish_via_partition_root)"], ["top"]),
        (["p FOR TABLE leaf", "q FOR TABLE top WITH (publish_via_partition_root)"], ["top"]),
        (["p FOR TABLE middle, other_leaf WITH (publish_via_partition_root)"], ["middle", "other_leaf"]),
        (["p FOR TABLE middle, top WITH (publish_via_partition_root)"], ["top"]),
        (["p FOR TABLE middle", "q FOR TABLE leaf"], ["leaf"]),
        (["p FOR TABLE middle WITH (publish_via_partition_root)", "q FOR ALL TABLES"], ["middle", "other_leaf"]),
    ],
    ids=str,
)
def test_a_partition_is_told_as_the_table_that_the_stream_brings_it_as(
    every_postgres: Database, publications: list[str], expected: list[str]
) -> None:
    database = every_postgres
    database.execute(_PARTITIONED)
    for publication in publications:
        database.execute(f"CREATE PUBLICATION {publication}")
    with streaming(database, publication=[publication[0] for publication in publications]) as source:
        told = list(source.list_published())
        database.execute("INSERT INTO top VALUES (1, 1), (1, 11)")
        streamed = [change.relation for batch in read_all(source, database) for change in batch.changes]
    assert {relation.table for relation in told} == set(expected)
    assert _sorted(told) == _sorted(streamed)


@pytest.mark.parametrize("option", ["", "WITH (publish_generated_columns = stored)"], ids=["left out", "stored"])
def test_generated_columns_are_told_as_the_stream_has_them(every_postgres: Database, option: str) -> None:
    database = every_postgres
    if option and database.version < 18:
        pytest.skip("generated columns are in the stream since PostgreSQL 18")
    database.execute("CREATE TABLE t (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED, v int)")
    database.execute(f"CREATE PUBLICATION p FOR TABLE t {option}")
    with streaming(database) as source:
        told = list(source.list_published())
        database.execute("INSERT INTO t VALUES (1)")
        streamed = [change.relation for batch in read_all(source, database) for change in batch.changes]
    assert told == streamed
    assert len(told[0].columns) == (3 if option else 2)


@pytest.mark.parametrize(
    ("publication", "found"),
    [
        ("FOR ALL TABLES", ["public.part_1", "public.quick", "public.sub", 'side."Quick one"']),
        ("FOR TABLES IN SCHEMA side", ['side."Quick one"']),
        ("FOR TABLE parts, logged", ["public.part_1", "public.sub"]),
        ("FOR TABLE logged", []),
    ],
)
def test_check_names_the_unlogged_tables_of_a_publication_whose_changes_never_come(
    database: Database, publication: str, found: list[str]
) -> None:
    database.execute(f"""
        CREATE SCHEMA side;
        CREATE TABLE logged (id int PRIMARY KEY);
        CREATE UNLOGGED TABLE quick (id int PRIMARY KEY);
        CREATE UNLOGGED TABLE side."Quick one" (id int PRIMARY KEY);
        CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id);
        CREATE UNLOGGED TABLE part_1 PARTITION OF parts FOR VALUES FROM (0) TO (10);
        CREATE TABLE part_2 PARTITION OF parts FOR VALUES FROM (10) TO (20);
        CREATE TABLE part_3 PARTITION OF parts FOR VALUES FROM (20) TO (30) PARTITION BY RANGE (id);
        CREATE UNLOGGED TABLE sub PARTITION OF part_3 FOR VALUES FROM (20) TO (30);
        CREATE PUBLICATION p {publication}
    """)
    told = [finding for finding in source_of(database).check() if "UNLOGGED" in finding.problem]
    assert [finding.problem.partition(" is UNLOGGED")[0] for finding in told] == found
    assert all("SET LOGGED, then ask for a snapshot" in finding.remedy for finding in told)
