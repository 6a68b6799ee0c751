"""What every kind of statement becomes, on a real server: D1 to D14 of docs/behaviour.md."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from typing import Any

import psycopg2.errors
import pytest

from psql_streamer.errors import SinkRefused, SourceRefused
from psql_streamer.events.routing import Router
from psql_streamer.model import RowOp
from tests.capture_scenarios import BULKY
from tests.database import Database
from tests.encoding import JSON_FORMATS
from tests.shared_stream import Event, SharedStream, events, rows
from tests.source_at_work import identities, read_all, source_of, streaming
from tests.source_at_work import rows as row_texts

_AWKWARD_NAMES = (
    "dots.in.it",
    "spaces in it",
    'a "quote"',
    "an apo'strophe",
    "UpperCase",
    "żółć 🐘",
    "back\\slash",
    "tab\tand\nline",
    "{table}",
    "%s $1",
    "select",
    "x" * 63,
)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _folded(told: Iterable[Event]) -> dict[str, Any]:
    """What a compacted topic of the format `flat` keeps: the last row of each key."""
    table: dict[str, Any] = {}
    for event in told:
        key = json.dumps(event.key)
        table.pop(key, None)
        if event.value is not None:
            table[key] = event.value
    return table


def _selected(database: Database, table: str, *key: str) -> dict[str, Any]:
    found = [row for (row,) in database.query(f"SELECT to_json({table}) FROM {table}")]
    return {json.dumps({name: row[name] for name in key}): row for row in found}


# Transactions.


@pytest.mark.behaviour("D1")
def test_only_what_a_transaction_committed_is_told_once_and_in_its_order(stream: SharedStream) -> None:
    stream.run(
        "CREATE TABLE t (id int PRIMARY KEY); CREATE SCHEMA shop; CREATE TABLE shop.t (id int PRIMARY KEY)",
        """
        INSERT INTO t VALUES (1);
        SAVEPOINT undone; INSERT INTO shop.t VALUES (90); INSERT INTO t VALUES (91); ROLLBACK TO undone;
        INSERT INTO shop.t VALUES (2);
        SAVEPOINT outer_one; INSERT INTO t VALUES (3);
        SAVEPOINT inner_one; INSERT INTO t VALUES (92); ROLLBACK TO inner_one;
        INSERT INTO shop.t VALUES (4); RELEASE outer_one;
        DO $$ BEGIN INSERT INTO t VALUES (93); RAISE 'no'; EXCEPTION WHEN others THEN INSERT INTO t VALUES (5); END $$;
        UPDATE t SET id = 6 WHERE id = 5
        """,
        "BEGIN; INSERT INTO t VALUES (94); ROLLBACK",
    )
    told = events(stream.batches())
    one, other = "public.t", "shop.t"
    assert rows(told) == [
        ("I", one, {"id": 1}),
        ("I", other, {"id": 2}),
        ("I", one, {"id": 3}),
        ("I", other, {"id": 4}),
        ("I", one, {"id": 5}),
        ("D", one, {"id": 5}),
        ("I", one, {"id": 6}),
    ]
    assert len({commit_lsn for (commit_lsn, _) in (event.identity for event in told)}) == 1
    assert [event.identity[1] for event in told] == [0, 1, 2, 3, 4, 5, 5]


@pytest.mark.behaviour("D1")
def test_many_savepoints_are_one_transaction(stream: SharedStream) -> None:
    stream.run("CREATE TABLE t (id int PRIMARY KEY)")
    kept = "".join(f"SAVEPOINT s; INSERT INTO t VALUES ({i}); RELEASE s;" for i in range(200))
    undone = "".join(f"SAVEPOINT s; INSERT INTO t VALUES ({i}); ROLLBACK TO s;" for i in range(1000, 1100))
    assert [row["id"] for _, _, row in stream.told(kept + undone)] == list(range(200))


@pytest.mark.behaviour("D2")
def test_transactions_that_interleave_come_one_after_the_other_in_the_order_of_their_commits(
    stream: SharedStream,
) -> None:
    stream.run("CREATE TABLE t (id int PRIMARY KEY, by text)")
    database = stream.database
    # Blocks of a few frames: transactions are cut anywhere.
    with (
        stream.another(batchSize=3) as source,
        database.session() as one,
        database.session() as two,
        database.session() as three,
    ):
        sessions = {"one": one.cursor(), "two": two.cursor(), "three": three.cursor()}
        for i in range(60):
            name = ("one", "two", "three")[i % 3]
            sessions[name].execute("INSERT INTO t VALUES (%s, %s)", (i, name))
        for session in (two, three, one):
            session.commit()
        batches = read_all(source, database)
    told = rows(events(batches))
    assert [name for name, _ in groupby(row["by"] for _, _, row in told)] == ["two", "three", "one"]
    assert [row["id"] for _, _, row in told] == [*range(1, 60, 3), *range(2, 60, 3), *range(0, 60, 3)]
    commits = [commit_lsn for commit_lsn, _ in identities(batches)]
    assert commits == sorted(commits)
    assert [seq for _, seq in identities(batches)] == [*range(20)] * 3


# Rows and keys.


@pytest.mark.behaviour("D3")
def test_the_replica_identity_says_what_is_known_of_an_old_row(stream: SharedStream) -> None:
    stream.run("""
        CREATE TABLE by_key (id int PRIMARY KEY, code text NOT NULL, note text);
        CREATE TABLE whole (LIKE by_key INCLUDING ALL); ALTER TABLE whole REPLICA IDENTITY FULL;
        CREATE TABLE by_index (LIKE by_key INCLUDING ALL); CREATE UNIQUE INDEX by_code ON by_index (code);
        ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_code;
        CREATE TABLE anonymous (LIKE by_key INCLUDING ALL); ALTER TABLE anonymous REPLICA IDENTITY NOTHING
    """)
    known = {}
    for table in ("by_key", "whole", "by_index"):
        stream.run(
            f"INSERT INTO {table} VALUES (1, 'a', NULL)",
            f"UPDATE {table} SET note = 'x'",
            f"UPDATE {table} SET id = 2, code = 'b'",
            f"DELETE FROM {table}",
        )
        told = events(stream.batches(), key={"*": ("note",)})
        known[table] = [(event.op, event.value["before"]) for event in told if event.op != "I"]
    old, new = {"id": 1, "code": "a", "note": "x"}, {"id": 2, "code": "b", "note": "x"}
    assert known["by_key"] == [("U", None), ("U", {"id": 1}), ("D", {"id": 2})]
    assert known["by_index"] == [("U", None), ("U", {"code": "a"}), ("D", {"code": "b"})]
    # The key that was asked for is `note`, which an update changes: a delete of the old row.
    assert known["whole"] == [("D", {"id": 1, "code": "a", "note": None}), ("U", old), ("D", new)]
    assert stream.told("INSERT INTO anonymous VALUES (1, 'a', NULL)") == [
        ("I", "public.anonymous", {"id": 1, "code": "a", "note": None})
    ]


@pytest.mark.behaviour("D4")
def test_a_key_update_is_a_delete_of_the_old_key_and_an_insert_of_the_new_one_linked_by_headers(
    stream: SharedStream,
) -> None:
    stream.run("CREATE TABLE t (a int, b text, note text, PRIMARY KEY (b, a))", "INSERT INTO t VALUES (1, 'x', 'n')")
    stream.batches()
    stream.run("UPDATE t SET a = 2, note = 'm'", "UPDATE t SET note = 'k'")
    batches = stream.batches()
    old, new = {"b": "x", "a": 1}, {"b": "x", "a": 2}
    for form, tombstones in (("event", []), ("envelope", []), ("debezium", [("D", old)]), ("flat", [])):
        told = events(batches, form, headers=True)
        told_keys = [(event.op, {**event.key}) for event in told]
        assert told_keys == [("D", old), *tombstones, ("I", new), ("U", new)], form
        pair = told[: 2 + len(tombstones)]
        assert {event.headers.get("key_change") for event in pair} == {"true"}, form
        assert len({event.identity for event in pair}) == 1, form
        assert len({event.headers["commit_lsn"] + event.headers["seq"] for event in pair}) == 1, form
        assert "key_change" not in told[-1].headers, form
    assert next(event.value for event in events(batches, "flat")) is None


@pytest.mark.behaviour("D4")
def test_a_compacted_topic_ends_up_as_the_table_whatever_was_done_to_the_keys(stream: SharedStream) -> None:
    stream.run(
        "CREATE TABLE t (id int PRIMARY KEY, note text)",
        "INSERT INTO t SELECT i, 'n' || i FROM generate_series(1, 20) i",
        "UPDATE t SET id = id + 100 WHERE id <= 10",
        "UPDATE t SET id = -1 WHERE id = 11; UPDATE t SET id = 11 WHERE id = 12; UPDATE t SET id = 12 WHERE id = -1",
        "UPDATE t SET id = -id, note = note || '!' WHERE id > 100",
        "DELETE FROM t WHERE id = 15; INSERT INTO t VALUES (15, 'again'); UPDATE t SET id = 16000 WHERE id = 16",
        "INSERT INTO t VALUES (13, 'x') ON CONFLICT (id) DO UPDATE SET note = 'upserted', id = 130",
        "MERGE INTO t USING (VALUES (17), (900)) v (i) ON id = i WHEN MATCHED THEN DELETE"
        " WHEN NOT MATCHED THEN INSERT VALUES (i, 'merged')",
    )
    assert _folded(events(stream.batches(), "flat")) == _selected(stream.database, "t", "id")


@pytest.mark.behaviour("D4", "D6")
def test_a_key_so_long_that_it_is_toasted_is_in_the_key_of_every_event(stream: SharedStream) -> None:
    stream.run(
        "CREATE TABLE t (id text PRIMARY KEY, note text); ALTER TABLE t ALTER id SET STORAGE EXTERNAL",
        f"INSERT INTO t SELECT left({BULKY}, 2300), 'a'",
    )
    key = stream.database.value("SELECT id FROM t")
    stream.run("UPDATE t SET note = 'b'", "UPDATE t SET id = 'short'", "DELETE FROM t")
    told = events(stream.batches())
    assert [(event.op, event.key["id"]) for event in told] == [
        ("I", key),
        ("U", key),
        ("D", key),
        ("I", "short"),
        ("D", "short"),
    ]
    assert told[1].value["after"] == {"id": key, "note": "b"}


@pytest.mark.behaviour("D5")
def test_a_table_without_a_key_streams_with_a_null_key_and_check_explains_what_the_server_refuses(
    stream: SharedStream,
) -> None:
    stream.run("""
        CREATE TABLE bare (id int);
        CREATE TABLE deferred (id int PRIMARY KEY DEFERRABLE);
        CREATE TABLE nothing (id int PRIMARY KEY); ALTER TABLE nothing REPLICA IDENTITY NOTHING;
        CREATE TABLE by_index (id int NOT NULL); CREATE UNIQUE INDEX gone ON by_index (id);
        ALTER TABLE by_index REPLICA IDENTITY USING INDEX gone; DROP INDEX gone;
        CREATE TABLE whole (id int); ALTER TABLE whole REPLICA IDENTITY FULL;
        CREATE TABLE sound (id int PRIMARY KEY)
    """)
    tables = ("bare", "deferred", "nothing", "by_index", "whole", "sound")
    stream.run(*(f"INSERT INTO {table} VALUES (1)" for table in tables))
    keys = {event.table: event.key for event in events(stream.batches())}
    assert keys == {f"public.{table}": {"id": 1} if table == "sound" else None for table in tables}

    refused = []
    for table in tables:
        try:
            stream.run(f"UPDATE {table} SET id = 2")
        except psycopg2.errors.ObjectNotInPrerequisiteState:
            refused.append(table)
    assert refused == ["bare", "deferred", "nothing", "by_index"]
    found = [finding for finding in stream.source.check() if "replica identity" in finding.problem]
    assert sorted(finding.problem.split()[0] for finding in found) == sorted(f"public.{table}" for table in refused)
    assert all("REPLICA IDENTITY FULL" in finding.remedy for finding in found)
    assert [(op, table) for op, table, _ in stream.told()] == [
        ("U", "public.whole"),
        ("D", "public.sound"),
        ("I", "public.sound"),
    ]


@pytest.mark.behaviour("D5", "D14")
def test_check_explains_which_column_lists_and_row_filters_keep_the_server_from_updates(stream: SharedStream) -> None:
    stream.run("""
        CREATE TABLE short (id int PRIMARY KEY, a int); CREATE TABLE listed (id int PRIMARY KEY, a int);
        CREATE TABLE whole (id int PRIMARY KEY, a int); ALTER TABLE whole REPLICA IDENTITY FULL;
        CREATE TABLE filtered (id int PRIMARY KEY, a int); CREATE TABLE by_key (id int PRIMARY KEY, a int);
        CREATE TABLE by_any (id int PRIMARY KEY, a int); ALTER TABLE by_any REPLICA IDENTITY FULL;
        CREATE PUBLICATION part FOR TABLE short (a), listed (a, id), whole (id, a), filtered WHERE (a > 0),
            by_key WHERE (id > 0), by_any WHERE (a > 0)
    """)
    refused = []
    for table in ("short", "listed", "whole", "filtered", "by_key", "by_any"):
        try:
            stream.run(f"UPDATE {table} SET a = 2")
        except psycopg2.errors.InvalidColumnReference:
            refused.append(table)
    findings = source_of(stream.database, publication="part").check()
    found = {finding.problem: finding.remedy for finding in findings if "refuses" in finding.problem}
    stream.run("DROP PUBLICATION part")
    assert refused == ["short", "whole", "filtered"]
    assert [" ".join(problem.split()[1:5]) for problem in found] == [
        "row filter of public.filtered",
        "column list of public.short",
        "column list of public.whole",
    ]
    assert next(iter(found.values())).startswith("ALTER TABLE public.filtered REPLICA IDENTITY FULL")


# TOAST.


@pytest.mark.behaviour("D6")
def test_a_toasted_value_that_an_update_left_alone_is_no_null_in_any_format(stream: SharedStream) -> None:
    stream.run(f"""
        CREATE TABLE t (id int PRIMARY KEY, n int, a text, b bytea, c jsonb, d text[], e text);
        ALTER TABLE t ALTER a SET STORAGE EXTERNAL, ALTER b SET STORAGE EXTERNAL, ALTER c SET STORAGE EXTERNAL,
            ALTER d SET STORAGE EXTERNAL;
        CREATE TABLE whole (LIKE t INCLUDING ALL); ALTER TABLE whole REPLICA IDENTITY FULL;
        INSERT INTO t
            VALUES (1, 0, {BULKY}, decode({BULKY} || {BULKY}, 'hex'), to_jsonb({BULKY}), ARRAY[{BULKY}, NULL], NULL);
        INSERT INTO whole SELECT * FROM t
    """)
    stream.batches()
    stream.run("UPDATE t SET n = 1", "UPDATE t SET a = NULL, b = '', c = NULL", "UPDATE whole SET n = 1")
    batches = stream.batches()
    left_alone = [{"a", "b", "c", "d"}, {"d"}, set()]
    whole = json.loads(stream.database.value("SELECT to_json(whole)::text FROM whole"))
    for form in JSON_FORMATS:
        told = events(batches, form, headers=True)
        images = [_after(form, event.value) for event in told]
        assert [_unchanged(form, event, image) for event, image in zip(told, images, strict=True)] == left_alone, form
        assert all(image["e"] is None for image in images), form
        assert (images[1]["a"], images[1]["b"], images[1]["c"]) == (None, "", None), form
        assert {name: images[2][name] for name in ("a", "d")} == {name: whole[name] for name in ("a", "d")}, form
        assert len(images[2]["b"]) > 2000, form


def _after(form: str, value: Any) -> dict[str, Any]:
    row: dict[str, Any] = value if form == "flat" else value["Columns" if form == "event" else "after"]
    return row


def _unchanged(form: str, event: Event, image: dict[str, Any]) -> set[str]:
    """The columns that an event says are as they were."""
    if form == "debezium":
        unavailable = ("__debezium_unavailable_value", base64.b64encode(b"__debezium_unavailable_value").decode())
        return {name for name in "abcd" if image[name] in (*unavailable, [unavailable[0]])}
    names = event.value.get("unchanged" if form == "envelope" else "Unchanged", [])
    if form == "flat":
        names = json.loads(event.headers.get("unchanged", "[]"))
    assert set(names) == {name for name in "abcd" if name not in image}
    return set(names)


# Names and tables.


@pytest.mark.behaviour("D7")
def test_awkward_names_of_schemas_tables_and_columns_reach_the_event_and_a_legal_topic(stream: SharedStream) -> None:
    for name in _AWKWARD_NAMES:
        quoted = _quoted(name)
        stream.run(
            f"CREATE SCHEMA {quoted}; CREATE TABLE {quoted}.{quoted} ({quoted} int PRIMARY KEY, v text);"
            f"INSERT INTO {quoted}.{quoted} VALUES (1, 'v')"
        )
    told = events(stream.batches(), "event", Router({}, "cdc", ""))
    assert [(event.value["Schema"], event.value["Table"]) for event in told] == [(n, n) for n in _AWKWARD_NAMES]
    assert [event.key for event in told] == [{name: 1} for name in _AWKWARD_NAMES]
    assert [event.value["Columns"] for event in told] == [{name: 1, "v": "v"} for name in _AWKWARD_NAMES]
    topics = [event.topic for event in told]
    assert all(re.fullmatch(r"cdc\.[a-zA-Z0-9._-]+", topic) for topic in topics)
    assert len(set(topics)) == len(topics)


@pytest.mark.behaviour("D7")
def test_two_tables_whose_topics_would_be_one_are_refused_by_name(stream: SharedStream) -> None:
    stream.run(
        'CREATE TABLE "a b" (id int PRIMARY KEY); CREATE TABLE a_b (id int PRIMARY KEY)',
        'INSERT INTO "a b" VALUES (1); INSERT INTO a_b VALUES (1)',
    )
    batches = stream.batches()
    with pytest.raises(SinkRefused, match=r'"public"\."a[_ ]b" and .* would both go to topic "cdc\.public\.a_b"'):
        events(batches, router=Router({}, "cdc", ""))
    assert len(events(batches, router=Router({"a b": "elsewhere"}, "cdc", ""))) == 2


@pytest.mark.behaviour("D8")
@pytest.mark.parametrize("while_away", [False, True])
def test_tables_made_renamed_moved_and_dropped_are_told_under_the_name_of_their_time(
    stream: SharedStream, while_away: bool
) -> None:
    steps = (
        "CREATE TABLE t (id int PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
        "ALTER TABLE t RENAME TO u",
        "INSERT INTO u VALUES (2)",
        "CREATE SCHEMA shop; ALTER TABLE u SET SCHEMA shop",
        "INSERT INTO shop.u VALUES (3); ALTER TABLE shop.u RENAME TO v; INSERT INTO shop.v VALUES (4)",
        "ALTER SCHEMA shop RENAME TO store",
        "INSERT INTO store.v VALUES (5)",
        "DELETE FROM store.v WHERE id = 1; DROP TABLE store.v",
        "CREATE TABLE made_and_gone AS SELECT 7 AS id; DROP TABLE made_and_gone",
        "CREATE UNLOGGED TABLE not_logged (id int); INSERT INTO not_logged VALUES (8); CREATE TEMP TABLE mine (id int)",
        "CREATE TABLE t (name text PRIMARY KEY); INSERT INTO t VALUES ('six')",
        "CREATE MATERIALIZED VIEW seen AS SELECT * FROM t; REFRESH MATERIALIZED VIEW seen",
    )
    if while_away:
        with stream.away():
            stream.run(*steps)
        told = stream.told()
    else:
        told = [change for step in steps for change in stream.told(step)]
    assert told == [
        ("I", "public.t", {"id": 1}),
        ("I", "public.u", {"id": 2}),
        ("I", "shop.u", {"id": 3}),
        ("I", "shop.v", {"id": 4}),
        ("I", "store.v", {"id": 5}),
        ("D", "store.v", {"id": 1}),
        ("I", "public.made_and_gone", {"id": 7}),
        ("I", "public.t", {"name": "six"}),
    ]


@pytest.mark.behaviour("D8")
def test_tables_that_join_and_leave_a_publication_while_it_is_streamed(stream: SharedStream) -> None:
    database = stream.database
    stream.run("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY); CREATE PUBLICATION part")
    with stream.another(publication=["part"]) as source:
        for sql in (
            "INSERT INTO a VALUES (1)",
            "ALTER PUBLICATION part ADD TABLE a",
            "INSERT INTO a VALUES (2); INSERT INTO b VALUES (2)",
            "ALTER PUBLICATION part SET TABLE b",
            "INSERT INTO a VALUES (3); INSERT INTO b VALUES (3)",
            "ALTER PUBLICATION part SET (publish = 'update, delete')",
            "INSERT INTO b VALUES (4); DELETE FROM b WHERE id = 3",
        ):
            stream.run(sql)
        told = rows(events(read_all(source, database)))
    stream.run("DROP PUBLICATION part")
    assert told == [("I", "public.a", {"id": 2}), ("I", "public.b", {"id": 3}), ("D", "public.b", {"id": 3})]


_PARTITIONS = """
CREATE TABLE t (id int PRIMARY KEY, note text) PARTITION BY RANGE (id);
CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (10);
CREATE TABLE high PARTITION OF t FOR VALUES FROM (10) TO (30) PARTITION BY RANGE (id);
CREATE TABLE highest PARTITION OF high FOR VALUES FROM (20) TO (30);
CREATE TABLE alone (gone int, note text, id int PRIMARY KEY); ALTER TABLE alone DROP gone;
CREATE PUBLICATION parts FOR TABLE t, alone WITH (publish_via_partition_root = {})
"""


@pytest.mark.behaviour("D9")
@pytest.mark.parametrize("via_root", [False, True])
def test_rows_of_partitions_come_under_the_leafs_name_or_the_roots(stream: SharedStream, via_root: bool) -> None:
    database = stream.database
    stream.run(_PARTITIONS.format(via_root))
    low, highest, root = ("public.t",) * 3 if via_root else ("public.low", "public.highest", "public.t")
    with stream.another(publication=["parts"]) as source:
        stream.run(
            "INSERT INTO t VALUES (1, 'a'), (20, 'b'); INSERT INTO highest VALUES (21, 'c')",
            "UPDATE t SET note = 'x' WHERE id = 1",
            "UPDATE t SET id = 22 WHERE id = 1",
            "INSERT INTO alone (id, note) VALUES (11, 'alone')",
            "ALTER TABLE high ATTACH PARTITION alone FOR VALUES FROM (10) TO (20)",
            "INSERT INTO t VALUES (12, 'attached')",
            "ALTER TABLE high DETACH PARTITION alone",
            "INSERT INTO alone (id, note) VALUES (13, 'detached')",
            "TRUNCATE highest",
            "TRUNCATE t",
            "INSERT INTO t VALUES (2, 'after')",
        )
        batches = read_all(source, database)
    told = events(batches)
    stream.run("DROP PUBLICATION parts")
    # A row that moves to another partition is deleted and inserted by PostgreSQL itself.
    expected = [
        ("I", low, {"id": 1, "note": "a"}),
        ("I", highest, {"id": 20, "note": "b"}),
        ("I", highest, {"id": 21, "note": "c"}),
        ("U", low, {"id": 1, "note": "x"}),
        ("D", low, {"id": 1}),
        ("I", highest, {"id": 22, "note": "x"}),
        ("I", "public.alone", {"id": 11, "note": "alone"}),
        ("I", root if via_root else "public.alone", {"id": 12, "note": "attached"}),
        ("I", "public.alone", {"id": 13, "note": "detached"}),
        # Under the root's name the truncate of one leaf is not published.
        *([] if via_root else [("T", highest, None)]),
        *([("T", root, None)] if via_root else [("T", low, None), ("T", highest, None)]),
        ("I", low, {"id": 2, "note": "after"}),
    ]
    assert rows(told) == expected
    assert all(event.key == {"id": event.value["after"]["id"]} for event in told if event.op in "IU")


# Statements that are no rows.


@pytest.mark.behaviour("D10")
def test_a_truncate_of_several_tables_is_an_event_for_each_and_the_stream_goes_on(stream: SharedStream) -> None:
    stream.run("""
        CREATE TABLE parent (id serial PRIMARY KEY);
        CREATE TABLE child (id serial PRIMARY KEY, parent int REFERENCES parent);
        CREATE SCHEMA shop; CREATE TABLE shop.other (id int PRIMARY KEY)
    """)
    stream.run(
        "INSERT INTO parent DEFAULT VALUES; TRUNCATE shop.other, parent CASCADE; INSERT INTO parent DEFAULT VALUES",
        "TRUNCATE parent, child RESTART IDENTITY",
        "INSERT INTO parent DEFAULT VALUES; SAVEPOINT s; TRUNCATE parent CASCADE; ROLLBACK TO s",
        "TRUNCATE ONLY shop.other",
    )
    told = events(stream.batches())
    parent, child, other = "public.parent", "public.child", "shop.other"
    assert [(event.op, event.table, event.value.get("options")) for event in told] == [
        ("I", parent, None),
        ("T", other, ["CASCADE"]),
        ("T", parent, ["CASCADE"]),
        ("T", child, ["CASCADE"]),
        ("I", parent, None),
        ("T", parent, ["RESTART IDENTITY"]),
        ("T", child, ["RESTART IDENTITY"]),
        ("I", parent, None),
        ("T", other, []),
    ]
    assert [event.identity[1] for event in told] == [0, 1, 2, 3, 4, 0, 1, 0, 0]
    assert [event.value["after"]["id"] for event in told if event.op == "I"] == [1, 2, 1]


@pytest.mark.behaviour("D11")
def test_logical_messages_are_events_that_go_to_a_topic_by_their_prefix(stream: SharedStream) -> None:
    database = stream.database
    stream.run("CREATE TABLE t (id int PRIMARY KEY)")
    with database.session() as session, session.cursor() as cursor:
        cursor.execute("""
            INSERT INTO t VALUES (1);
            SELECT pg_logical_emit_message(true, 'audit', 'text "q" 🐘');
            INSERT INTO t VALUES (2);
            SELECT pg_logical_emit_message(true, 'audit', '\\x00ff0a'::bytea);
            SELECT pg_logical_emit_message(true, 'odd pre/fix', '');
            SELECT pg_logical_emit_message(true, 'audit', repeat('x', 1000000));
            SELECT pg_logical_emit_message(false, 'now', 'before the commit')
        """)
        session.commit()
    stream.run(
        "SELECT pg_logical_emit_message(true, 'audit', 'undone'), pg_logical_emit_message(false, 'now', 'kept');"
        " ROLLBACK; BEGIN"
    )
    router = Router({}, "", "rows", "m.{prefix}")
    told = [event for event in events(stream.batches(), "event", router) if not event.topic.startswith("m.mark")]
    content = [(event.topic, event.value.get("Content"), event.value.get("ContentBase64")) for event in told]
    assert content == [
        ("m.now", "before the commit", None),
        ("rows", None, None),
        ("m.audit", 'text "q" 🐘', None),
        ("rows", None, None),
        ("m.audit", None, "AP8K"),
        ("m.odd_pre_fix", "", None),
        ("m.audit", "x" * 1_000_000, None),
        ("m.now", "kept", None),
    ]
    # A message outside of transactions is no change of one: its number is -1.
    assert [event.identity[1] for event in told] == [-1, 0, 1, 2, 3, 4, 5, -1]
    assert [event.op for event in told if event.topic != "rows"] == ["M"] * 6


@pytest.mark.behaviour("D12")
def test_transactions_that_came_from_elsewhere_stream_like_others(stream: SharedStream) -> None:
    database = stream.database
    name = f"origin_{database.name}"
    stream.run("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("SELECT pg_replication_origin_create(%s)", name)
    try:
        with database.session() as session, session.cursor() as cursor:
            cursor.execute("SELECT pg_replication_origin_session_setup(%s)", (name,))
            session.commit()
            cursor.execute("SELECT pg_replication_origin_xact_setup('0/ABCDEF', '2020-01-01')")
            cursor.execute("INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)")
            session.commit()
            cursor.execute("INSERT INTO t VALUES (3)")
            session.commit()
        assert [row["id"] for _, _, row in stream.told("INSERT INTO t VALUES (4)")] == [1, 2, 3, 4]
    finally:
        database.execute("SELECT pg_replication_origin_drop(%s)", name)


# Sizes.


@pytest.mark.behaviour("D13")
def test_two_hundred_columns_and_values_of_a_megabyte_are_rows_like_others(stream: SharedStream) -> None:
    names = [f"c{i}" for i in range(200)]
    stream.run(
        f"CREATE TABLE wide (id int PRIMARY KEY, {', '.join(name + ' text' for name in names)}, big text, raw bytea)",
        "INSERT INTO wide (id, c0, c199, big, raw) VALUES (1, 'first', 'last', repeat('ż', 500000) || '\"', "
        "decode(repeat('00ff', 500000), 'hex'))",
        f"INSERT INTO wide VALUES (2, {', '.join(repr(name) for name in names)})",
    )
    stream.run("UPDATE wide SET c100 = 'middle'", "ALTER TABLE wide REPLICA IDENTITY FULL", "DELETE FROM wide")
    first, second, *changed = [row for _, _, row in stream.told()]
    assert (first["c0"], first["c1"], first["c199"]) == ("first", None, "last")
    assert first["big"] == "ż" * 500_000 + '"'
    assert len(first["raw"]) == 4 * ((1_000_000 + 2) // 3)
    assert second == {"id": 2, **{name: name for name in names}, "big": None, "raw": None}
    assert [row["c100"] for row in changed] == ["middle"] * 4
    assert changed[2]["big"] == first["big"]


@pytest.mark.behaviour("D13")
def test_a_thousand_tables_in_one_publication_stream_each_under_its_name(stream: SharedStream) -> None:
    """As many as a test has time for; nothing is kept per table that is not a few hundred bytes."""
    count = 1000
    each = "DO $$ BEGIN FOR i IN 0..{} LOOP EXECUTE format({}); END LOOP; END $$"
    for start in range(0, count, 250):  # a transaction holds a lock on each table that it made
        stream.run(each.format(249, f"'CREATE TABLE t%s (id int PRIMARY KEY)', i + {start}"))
    for start in range(0, count, 250):
        stream.run(each.format(249, f"'INSERT INTO t%s VALUES (%s)', i + {start}, i + {start}"))
    assert stream.told() == [("I", f"public.t{i}", {"id": i}) for i in range(count)]
    for start in range(0, count, 250):
        stream.run(each.format(249, f"'DROP TABLE t%s', i + {start}"))


@pytest.mark.behaviour("D13")
@pytest.mark.parametrize("count", [100_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_a_transaction_of_very_many_rows_is_told_whole_and_once(database: Database, count: int) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION p FOR ALL TABLES")
    with streaming(database) as source:
        database.execute("INSERT INTO t SELECT i, 'v' || i FROM generate_series(1, %s) i", count)
        batches = [batch for batch in read_all(source, database) if batch.changes]
    assert sum(len(changes) for batch in batches for changes in batch.changes) == count
    assert max(map(len, batches)) < count, "it came in pieces"
    following, commits = 0, set()
    for batch in batches:
        (changes,) = batch.changes
        commits |= set(batch.transactions.commit[changes.tx].tolist())
        assert changes.seq.tolist() == list(range(following, following + len(changes)))
        following += len(changes)
        assert changes.after.columns[0][-1].as_py() == b"%d" % following
        assert set(changes.op.tolist()) == {RowOp.INSERT}
    assert len(commits) == 1


@pytest.mark.behaviour("D1")
def test_what_was_rolled_back_before_it_was_decoded_sends_nothing_and_stops_nothing(every_postgres: Database) -> None:
    every_postgres.execute("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION p FOR ALL TABLES")
    # Version 18 looks whether a transaction was rolled back when its changes exceed this.
    every_postgres.execute(f"ALTER DATABASE {every_postgres.name} SET logical_decoding_work_mem = '64kB'")
    with streaming(every_postgres) as source:
        position = read_all(source, every_postgres)[-1].position
    with every_postgres.session() as session, session.cursor() as cursor:
        cursor.execute("SAVEPOINT s; INSERT INTO t VALUES (1, 'undone'); RELEASE s")
        cursor.execute("INSERT INTO t SELECT i, 'undone' FROM generate_series(2, 2000) i")
        session.rollback()
        cursor.execute("INSERT INTO t VALUES (1, 'kept')")
        session.commit()
    with streaming(every_postgres, position) as source:
        assert row_texts(read_all(source, every_postgres)) == [(b"1", b"kept")]


# What a publication leaves out.


@pytest.mark.behaviour("D14")
def test_a_column_list_and_a_row_filter_say_what_of_a_table_is_told(stream: SharedStream) -> None:
    database = stream.database
    stream.run("""
        CREATE TABLE t (secret text, id int PRIMARY KEY, shown boolean, note text);
        ALTER TABLE t REPLICA IDENTITY FULL;
        CREATE TABLE listed (secret text, id int PRIMARY KEY, note text);
        CREATE PUBLICATION part FOR TABLE t WHERE (shown), listed (id, note)
    """)
    with stream.another(publication=["part"]) as source:
        stream.run(
            "INSERT INTO t VALUES ('s', 1, true, 'in'), ('s', 2, false, 'out'), ('s', 3, NULL, 'unknown')",
            "UPDATE t SET note = 'still in' WHERE id = 1",
            "UPDATE t SET shown = true WHERE id = 2",
            "UPDATE t SET shown = false WHERE id = 1",
            "DELETE FROM t",
            "INSERT INTO listed VALUES ('s', 1, 'a'); UPDATE listed SET secret = 'z'; UPDATE listed SET id = 2",
            "ALTER PUBLICATION part SET TABLE listed (id)",
            "INSERT INTO listed VALUES ('s', 3, 'a')",
        )
        told = rows(events(read_all(source, database)))
    stream.run("DROP PUBLICATION part")

    def whole(id_: int, shown: bool, note: str) -> dict[str, Any]:
        return {"secret": "s", "id": id_, "shown": shown, "note": note}

    assert told == [
        ("I", "public.t", whole(1, True, "in")),
        ("U", "public.t", whole(1, True, "still in")),
        ("I", "public.t", whole(2, True, "out")),
        ("D", "public.t", whole(1, True, "still in")),
        ("D", "public.t", whole(2, True, "out")),
        ("I", "public.listed", {"id": 1, "note": "a"}),
        ("U", "public.listed", {"id": 1, "note": "a"}),
        ("D", "public.listed", {"id": 1}),
        ("I", "public.listed", {"id": 2, "note": "a"}),
        ("I", "public.listed", {"id": 3}),
    ]


@pytest.mark.behaviour("D14", "O6")
@pytest.mark.parametrize("by_libpq", [False, True], ids=["socket", "libpq"])
@pytest.mark.parametrize(("condition", "code"), [("100 / n > 1", "22012"), ("decode(v, 'hex') > ''", "22023")])
def test_a_row_filter_that_fails_on_a_row_stops_the_source_with_the_place_and_without_the_value(
    database: Database, condition: str, code: str, by_libpq: bool
) -> None:
    # Where encryption may be had, libpq stands between the socket and the stream.
    served = replace(database, dsn=f"{database.dsn} gssencmode=prefer") if by_libpq else database
    served.execute("CREATE TABLE t (id int PRIMARY KEY, n int, v text); ALTER TABLE t REPLICA IDENTITY FULL")
    served.execute(f"CREATE PUBLICATION p FOR TABLE t WHERE ({condition})")
    with streaming(served) as source:
        served.execute("INSERT INTO t VALUES (1, 0, 'secret')")
        with pytest.raises(SourceRefused, match=rf"row filter .* at [0-9A-F]+/[0-9A-F]+ .*{code}") as refused:
            read_all(source, served)
    assert '"s"' not in str(refused.value)


@pytest.mark.behaviour("D14")
def test_generated_columns_are_told_where_the_server_publishes_them(stream: SharedStream) -> None:
    database = stream.database
    stream.run(
        "CREATE TABLE t (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED, "
        "serial int GENERATED ALWAYS AS IDENTITY, note text); CREATE PUBLICATION part FOR TABLE t"
    )
    publishes = database.version >= 18
    if publishes:
        stream.run("ALTER PUBLICATION part SET (publish_generated_columns = stored)")
    with stream.another(publication=["part"]) as source:
        stream.run("INSERT INTO t (id, note) VALUES (1, 'a')", "UPDATE t SET note = 'b', id = 5", "DELETE FROM t")
        told = [row for _, _, row in rows(events(read_all(source, database)))]
    stream.run("DROP PUBLICATION part")
    twice = [{"twice": 2}, {"twice": 10}] if publishes else [{}, {}]
    assert told == [
        {"id": 1, **twice[0], "serial": 1, "note": "a"},
        {"id": 1},
        {"id": 5, **twice[1], "serial": 1, "note": "b"},
        {"id": 5},
    ]


@pytest.mark.behaviour("D14")
def test_a_table_without_columns_has_rows_without_columns(stream: SharedStream) -> None:
    stream.run("CREATE TABLE bare (); ALTER TABLE bare REPLICA IDENTITY FULL")
    told = stream.told(
        "INSERT INTO bare DEFAULT VALUES; INSERT INTO bare DEFAULT VALUES",
        "DELETE FROM bare",
        "ALTER TABLE bare ADD late int; INSERT INTO bare VALUES (1)",
        "ALTER TABLE bare DROP late; INSERT INTO bare DEFAULT VALUES",
    )
    assert [(op, row) for op, _, row in told] == [*[("I", {})] * 2, *[("D", {})] * 2, ("I", {"late": 1}), ("I", {})]
