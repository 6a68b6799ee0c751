-- What Debezium was given: statements end with a semicolon at the end of a line. The tables are there before it starts.
CREATE EXTENSION hstore;
CREATE EXTENSION ltree;
CREATE EXTENSION citext;
CREATE TYPE mood AS ENUM ('sad', 'happy', 'a "quoted" \ one');
CREATE DOMAIN price AS numeric(12,2);
CREATE TABLE typed (
    id bigint PRIMARY KEY,
    b bool, i2 int2, i4 int4, o oid, f4 float4, f8 float8,
    n numeric, n12 numeric(12,2), n60 numeric(60,30), pr price, m money,
    t text, v varchar(9), c char(4), ch "char", ci citext, raw bytea,
    d date, tm time, tm3 time(3), ttz timetz, ts timestamp, ts3 timestamp(3), tz timestamptz, tz0 timestamptz(0),
    iv interval, u uuid, j json, jb jsonb, x xml, hs hstore, lt ltree, ip inet, ci4 cidr, ma macaddr, ma8 macaddr8,
    p point, e mood, tsv tsvector, b1 bit(1), b3 bit(3), b64 bit(64), vb varbit, vb1 varbit(1), vb9 varbit(9),
    r4 int4range, r8 int8range, rn numrange, rt tsrange, rz tstzrange, rd daterange,
    ab bool[], ai2 int2[], ai int[], ai8 bigint[], af8 float8[], an numeric[], an12 numeric(12,2)[], at text[], av varchar(9)[],
    ac char(4)[], ad date[], atm time[], ats timestamp[], atz timestamptz[], au uuid[], aj jsonb[], ahs hstore[], aip inet[]
);
CREATE TABLE orders (id int PRIMARY KEY, note text, "żółć 🐘" text);
CREATE TABLE items (id int, line text, of int, PRIMARY KEY (id, line));
CREATE TABLE whole (id int PRIMARY KEY, note text, big text);
ALTER TABLE whole REPLICA IDENTITY FULL, ALTER big SET STORAGE EXTERNAL;
CREATE TABLE toasted (id int PRIMARY KEY, note text, t text, raw bytea, ai int[], at text[], ad date[], au uuid[]);
ALTER TABLE toasted ALTER t SET STORAGE EXTERNAL, ALTER raw SET STORAGE EXTERNAL, ALTER ai SET STORAGE EXTERNAL, ALTER at SET STORAGE EXTERNAL, ALTER ad SET STORAGE EXTERNAL, ALTER au SET STORAGE EXTERNAL;
CREATE TABLE keyless (note text);
CREATE SCHEMA "odd one";
CREATE TABLE "odd one"."żółć.and $paces" (id int PRIMARY KEY);
SELECT pg_replication_origin_create('node_b');
-- From here on Debezium streams.
INSERT INTO typed VALUES (
    9223372036854775807, true, -32768, 2147483647, 4294967295, 0.1, -2.5,
    12345678901234567890.1234567891, -9999999999.99, 1.5, 19.90, -92233720368547758.08,
    E'tab\tquote"\\ \u2028 🐘', 'żółć', 'ab', 'x', 'Any', '\x00ff',
    '2024-02-29', '23:59:59.999999', '12:00:00.5', '12:00:00.5+05:45', '2024-02-29 23:59:59.999999', '1969-12-31 23:59:59.999',
    '2024-02-29 12:00:00.12+02', '2024-02-29 12:00+02', '1 year 2 mons -3 days 04:05:06.7',
    '123e4567-e89b-12d3-a456-426614174000', '{"b": 1,  "a": [null]}', '{"b":  "c"}', '<a b="c">d</a>', 'a=>1, "b \"q"=>NULL', 'a.b.c',
    '10.0.0.1/8', '10.0.0.0/8', '08:00:2b:01:02:03', '08:00:2b:01:02:03:04:05', '(1.5,-2)', 'happy', 'a:1A fat:2',
    B'1', B'101', B'1000000000000000000000000000000000000000000000000000000000000001', B'100000000', B'0', B'1',
    '[1,5)', '[1,)', '(1.10,2]', '[2024-01-01,2024-01-02)', '[2024-01-01 00:00+02,)', '[2024-01-01,2024-02-01)',
    '{t,f,NULL}', '{-1,NULL}', '{1,NULL,-3}', '{9223372036854775807}', '{1.5,NULL,-0.25}', '{1.5,10,NULL}', '{1.5,NULL}',
    ARRAY['a,b', 'NULL', NULL, E'q"\\'], '{a,b}', '{ab,cd}', '{2024-01-01,NULL}', '{12:00:00.5}', '{"2024-01-01 00:00:00.5",NULL}',
    '{"2024-01-01 00:00:00.5+02",NULL}', '{123e4567-e89b-12d3-a456-426614174000}', ARRAY['{"a":1}', NULL]::jsonb[], ARRAY['a=>1']::hstore[], '{10.0.0.1,::1}'
);
INSERT INTO typed (id) VALUES (-1);
INSERT INTO typed (id, f4, f8, n, n12, d, tm, tm3, ts, ts3, tz, tz0, iv, t, raw, hs, ab, ai, at, vb, vb1, b3, p) VALUES (
    0, 'Infinity', 'NaN', 'NaN', 'NaN', 'infinity', '24:00', '00:00', '-infinity', 'infinity', 'infinity', '-infinity', '0', '', '', '',
    '{}', '{}', '{}', '', '', B'000', '(0,1e20)');
INSERT INTO typed (id, f4, f8, n, n60, d, ts, ts3, tz, ttz, iv, m, vb9) VALUES (
    1, 16777216, 1, 120.00, -0.000000000000000000000000000001, '0044-03-15 BC', '0044-03-15 12:00:00.5 BC', '20240-01-01', '0044-03-15 12:00:00+00 BC', '24:00:00-12', '-1 day -00:00:00.000001', 0.01, B'000000001');
INSERT INTO typed (id, f8, n, d, tz, iv, ts) VALUES (2, -0.5, 1.50000, '-infinity', '20240-01-01 00:00+00', '200000 years', 'infinity');
INSERT INTO orders VALUES (1, 'one', NULL), (2, '', '🐘'), (3, NULL, '');
UPDATE orders SET note = 'uno' WHERE id = 1;
UPDATE orders SET id = 10, note = NULL WHERE id = 1;
DELETE FROM orders WHERE id = 2;
INSERT INTO whole VALUES (1, 'old', (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 70) AS i)), (2, NULL, NULL);
UPDATE whole SET note = 'new' WHERE id = 1;
UPDATE whole SET id = 3, big = 'small' WHERE id = 1;
DELETE FROM whole;
INSERT INTO toasted VALUES (1, 'a', (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 70) AS i), convert_to((SELECT string_agg(md5(i::text), '') FROM generate_series(1, 70) AS i), 'UTF8'), (SELECT array_agg(i) FROM generate_series(1, 600) AS i), (SELECT array_agg(md5(i::text)) FROM generate_series(1, 70) AS i), (SELECT array_agg('2024-01-01'::date + i) FROM generate_series(1, 600) AS i), (SELECT array_agg(md5(i::text)::uuid) FROM generate_series(1, 140) AS i));
UPDATE toasted SET note = 'b';
UPDATE toasted SET t = NULL;
INSERT INTO keyless VALUES ('nobody');
INSERT INTO "odd one"."żółć.and $paces" VALUES (7);
BEGIN;
INSERT INTO orders VALUES (20, 'two tables', NULL);
INSERT INTO items VALUES (20, 'a', 1), (20, 'b', 2);
SELECT pg_logical_emit_message(true, 'inside', 'text');
UPDATE orders SET note = 'again' WHERE id = 20;
SELECT pg_logical_emit_message(true, '', '');
COMMIT;
SELECT pg_logical_emit_message(false, 'outside', '\x00ff6400'::bytea);
UPDATE items SET of = 3 WHERE line = 'a';
TRUNCATE orders;
TRUNCATE whole, items RESTART IDENTITY;
SELECT pg_replication_origin_session_setup('node_b');
INSERT INTO orders VALUES (100, 'from elsewhere', NULL);
BEGIN;
SELECT pg_replication_origin_xact_setup('16/B374D848', '2024-01-01 00:00:00+00');
UPDATE orders SET note = 'x' WHERE id = 100;
SELECT pg_logical_emit_message(true, 'with origin', 'x');
COMMIT;
SELECT pg_replication_origin_session_reset();
INSERT INTO orders VALUES (101, 'from here', NULL);
SELECT pg_logical_emit_message(false, 'outside again', '');
