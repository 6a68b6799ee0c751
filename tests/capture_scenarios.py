"""What is played into a database to capture its replication stream."""

from __future__ import annotations

from dataclasses import dataclass

Step = tuple[str, str]
"""The session that runs it, and SQL."""


@dataclass(frozen=True)
class Scenario:
    """setup: SQL that runs before the slot is made. steps: in order, each session with transactions of its own."""

    setup: str
    steps: tuple[Step, ...]


BULKY = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 100) AS i)"
"""3,200 characters that do not compress: beyond TOAST_TUPLE_THRESHOLD (2 kB), so they are stored out of line."""

IDENTITIES = Scenario(
    """
    CREATE TABLE by_key (id int PRIMARY KEY, note text, "żółć 🐘" text);
    CREATE TABLE whole (id int, note text);
    ALTER TABLE whole REPLICA IDENTITY FULL;
    CREATE TABLE by_index (id int PRIMARY KEY, code text NOT NULL, region int NOT NULL, note text);
    CREATE UNIQUE INDEX by_index_code ON by_index (region, code);
    ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_code;
    CREATE TABLE anonymous (note text);
    ALTER TABLE anonymous REPLICA IDENTITY NOTHING;
    CREATE SCHEMA "an ""odd"" one";
    CREATE TABLE "an ""odd"" one"."dots.and spaces" (id int PRIMARY KEY)
    """,
    (
        ("a", "INSERT INTO by_key VALUES (1, 'one', NULL), (2, '', '🐘'), (3, NULL, '')"),
        ("a", "UPDATE by_key SET note = 'uno' WHERE id = 1"),
        ("a", "UPDATE by_key SET id = 10, note = NULL WHERE id = 1"),
        ("a", "DELETE FROM by_key WHERE id = 2"),
        ("a", "INSERT INTO whole VALUES (1, 'old'), (2, NULL)"),
        ("a", "UPDATE whole SET note = 'new' WHERE id = 1"),
        ("a", "DELETE FROM whole WHERE id = 2"),
        ("a", "INSERT INTO by_index VALUES (1, 'x', 49, 'first')"),
        ("a", "UPDATE by_index SET note = 'second'"),
        ("a", "UPDATE by_index SET code = 'y'"),
        ("a", "DELETE FROM by_index"),
        ("a", "INSERT INTO anonymous VALUES ('nobody')"),
        ("a", 'INSERT INTO "an ""odd"" one"."dots.and spaces" VALUES (7)'),
    ),
)

TRUNCATES_AND_MESSAGES = Scenario(
    """
    CREATE TABLE parent (id int PRIMARY KEY);
    CREATE TABLE child (id serial PRIMARY KEY, parent int REFERENCES parent);
    CREATE TABLE other (id int PRIMARY KEY)
    """,
    (
        ("a", "SELECT pg_logical_emit_message(false, 'outside', 'before all')"),
        (
            "a",
            "BEGIN; INSERT INTO parent VALUES (1); INSERT INTO child (parent) VALUES (1); INSERT INTO other VALUES (1)",
        ),
        ("a", "SELECT pg_logical_emit_message(true, 'inside', 'text')"),
        ("b", "SELECT pg_logical_emit_message(false, 'outside', '\\x00ff6400'::bytea)"),
        ("a", "COMMIT"),
        ("a", "TRUNCATE other"),
        ("a", "TRUNCATE parent, child RESTART IDENTITY"),
        ("a", "TRUNCATE parent CASCADE"),
        (
            "a",
            "BEGIN; INSERT INTO other VALUES (2); TRUNCATE other, parent CASCADE; INSERT INTO other VALUES (3); COMMIT",
        ),
        ("a", "SELECT pg_logical_emit_message(true, '', '')"),
        ("a", "BEGIN; SELECT pg_logical_emit_message(true, 'rolled back', ''); ROLLBACK"),
    ),
)

TOAST = Scenario(
    """
    CREATE TABLE by_key (id int PRIMARY KEY, note text, big text, raw bytea);
    ALTER TABLE by_key ALTER big SET STORAGE EXTERNAL, ALTER raw SET STORAGE EXTERNAL;
    CREATE TABLE whole (id int, note text, big text);
    ALTER TABLE whole ALTER big SET STORAGE EXTERNAL;
    ALTER TABLE whole REPLICA IDENTITY FULL
    """,
    (
        ("a", f"INSERT INTO by_key VALUES (1, 'a', {BULKY}, NULL), (2, 'b', 'small', decode(md5('x'), 'hex'))"),
        ("a", "UPDATE by_key SET note = note || '!'"),
        ("a", "UPDATE by_key SET big = NULL WHERE id = 1"),
        ("a", f"INSERT INTO whole VALUES (1, 'a', {BULKY})"),
        ("a", "UPDATE whole SET note = 'b'"),
        ("a", "DELETE FROM whole"),
    ),
)

DDL = Scenario(
    "CREATE TABLE shifting (id int PRIMARY KEY, note text)",
    (
        ("a", "INSERT INTO shifting VALUES (1, 'one')"),
        ("a", "BEGIN; INSERT INTO shifting VALUES (2, 'two'); ALTER TABLE shifting ADD extra numeric(8,2) DEFAULT 1.5"),
        ("a", "INSERT INTO shifting VALUES (3, 'three', 3.25); ALTER TABLE shifting RENAME note TO remark"),
        ("a", "UPDATE shifting SET remark = 'zwei' WHERE id = 2; ALTER TABLE shifting DROP extra"),
        ("a", "INSERT INTO shifting VALUES (4, 'four'); COMMIT"),
        ("a", "CREATE TYPE mood AS ENUM ('ok', 'ko'); CREATE DOMAIN positive AS int CHECK (VALUE > 0)"),
        (
            "a",
            "ALTER TABLE shifting ADD feels mood, ADD level positive; INSERT INTO shifting VALUES (5, 'five', 'ok', 5)",
        ),
        ("a", "ALTER TABLE shifting RENAME TO moved; CREATE SCHEMA elsewhere; ALTER TABLE moved SET SCHEMA elsewhere"),
        ("a", "INSERT INTO elsewhere.moved VALUES (6, 'six', 'ko', 6)"),
        ("a", "ALTER TABLE elsewhere.moved REPLICA IDENTITY FULL; DELETE FROM elsewhere.moved WHERE id = 1"),
        ("a", "DROP TABLE elsewhere.moved; CREATE TABLE shifting (lone int); INSERT INTO shifting VALUES (7)"),
        ("a", "CREATE TABLE bare (); INSERT INTO bare DEFAULT VALUES"),
        ("a", "ALTER TABLE shifting ALTER lone TYPE varchar(9); INSERT INTO shifting VALUES ('eight')"),
    ),
)

TRANSACTIONS = Scenario(
    """
    CREATE TABLE orders (id int PRIMARY KEY, total numeric);
    CREATE TABLE items (id int PRIMARY KEY, of int, name text);
    SELECT pg_replication_origin_create('node_b')
    """,
    (
        ("a", "BEGIN; INSERT INTO orders VALUES (1, 10.00)"),
        ("b", "BEGIN; INSERT INTO orders VALUES (2, 20.00); INSERT INTO items VALUES (20, 2, 'b')"),
        ("a", "INSERT INTO items VALUES (10, 1, 'a'); SAVEPOINT s; INSERT INTO items VALUES (11, 1, 'undone')"),
        ("b", "UPDATE orders SET total = 21 WHERE id = 2; COMMIT"),
        ("a", "ROLLBACK TO s; INSERT INTO items VALUES (12, 1, 'kept'); COMMIT"),
        ("a", "BEGIN; INSERT INTO orders VALUES (3, 0); ROLLBACK"),
        ("a", "INSERT INTO items SELECT i, 1, 'many ' || i FROM generate_series(100, 149) AS i"),
        ("a", "CREATE TEMP TABLE staged AS SELECT 1"),
        ("a", "SELECT pg_replication_origin_session_setup('node_b')"),
        ("a", "DELETE FROM items WHERE id < 100; UPDATE orders SET total = total + 1; DELETE FROM orders"),
    ),
)

TYPES = Scenario(
    """
    CREATE TYPE mood AS ENUM ('sad', 'happy');
    CREATE TYPE pair AS (left_one int, right_one text);
    CREATE TABLE typed (
        id bigint PRIMARY KEY, b bool, i2 int2, f4 float4, f8 float8, n numeric, t text,
        c char(4), v varchar(8), raw bytea, d date, tm time, ts timestamp, tz timestamptz, iv interval, u uuid,
        j json, jb jsonb, ia int[], ta text[], tt text[][], r int4range, ip inet, m mood, p pair, bits bit(3)
    )
    """,
    (
        (
            "a",
            """INSERT INTO typed VALUES (
            9223372036854775807, true, -32768, 0.1, 'NaN', 12345678901234567890.123456789, 'tab\tquote"\\',
            'ab', 'ż', '\\x00ff', '2024-02-29', '23:59:59.999999', 'infinity', '2024-02-29 12:00+02',
            '1 year -2 days 03:04:05', '123e4567-e89b-12d3-a456-426614174000', '{"a": [1, null]}', '{"b":  "c"}',
            '{1,NULL,3}', '{"a,b","NULL",NULL}',
            '[2:3][1:1]={{x},{y}}', '[1,5)', '10.0.0.1/8', 'happy', '(1,"two, three")', B'101')""",
        ),
        ("a", "INSERT INTO typed (id) VALUES (-1)"),
        ("a", "INSERT INTO typed (id, f8, n, d, ts) VALUES (0, '-Infinity', 'NaN', '0044-03-15 BC', '20240-01-01')"),
    ),
)

SCENARIOS = {
    "identities": IDENTITIES,
    "truncates_and_messages": TRUNCATES_AND_MESSAGES,
    "toast": TOAST,
    "ddl": DDL,
    "transactions": TRANSACTIONS,
    "types": TYPES,
}
