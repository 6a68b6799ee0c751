"""Tables whose keys are of every sort, for chunks that go along them."""

from __future__ import annotations

from typing import NamedTuple

SCHEMA = """
CREATE SCHEMA "Odd";
CREATE TYPE "Odd".mood AS ENUM ('z', 'a "b"', 'it''s', 'm');
CREATE DOMAIN "Odd".of_mood AS "Odd".mood;
CREATE DOMAIN "Odd".code AS varchar(20) CHECK (VALUE <> 'never');
CREATE TYPE "Odd".pair AS (n int, t text);
CREATE FUNCTION "Odd".below(int, int) RETURNS bool LANGUAGE sql IMMUTABLE SET jit = off RETURN $1 % 7 < $2 % 7;
CREATE FUNCTION "Odd".not_above(int, int) RETURNS bool LANGUAGE sql IMMUTABLE SET jit = off RETURN $1 % 7 <= $2 % 7;
CREATE FUNCTION "Odd".same(int, int) RETURNS bool LANGUAGE sql IMMUTABLE SET jit = off RETURN $1 % 7 = $2 % 7;
CREATE FUNCTION "Odd".not_below(int, int) RETURNS bool LANGUAGE sql IMMUTABLE SET jit = off RETURN $1 % 7 >= $2 % 7;
CREATE FUNCTION "Odd".above(int, int) RETURNS bool LANGUAGE sql IMMUTABLE SET jit = off RETURN $1 % 7 > $2 % 7;
CREATE FUNCTION "Odd".compare_days(int, int) RETURNS int LANGUAGE sql IMMUTABLE SET jit = off
    RETURN sign($1 % 7 - $2 % 7)::int;
CREATE OPERATOR "Odd".< (LEFTARG = int, RIGHTARG = int, FUNCTION = "Odd".below, COMMUTATOR = OPERATOR("Odd".>));
CREATE OPERATOR "Odd".<= (LEFTARG = int, RIGHTARG = int, FUNCTION = "Odd".not_above);
CREATE OPERATOR "Odd".= (LEFTARG = int, RIGHTARG = int, FUNCTION = "Odd".same, COMMUTATOR = OPERATOR("Odd".=), MERGES);
CREATE OPERATOR "Odd".>= (LEFTARG = int, RIGHTARG = int, FUNCTION = "Odd".not_below);
CREATE OPERATOR "Odd".> (LEFTARG = int, RIGHTARG = int, FUNCTION = "Odd".above, COMMUTATOR = OPERATOR("Odd".<));
CREATE OPERATOR CLASS "Odd".weekdays FOR TYPE int USING btree AS
    OPERATOR 1 "Odd".<, OPERATOR 2 "Odd".<=, OPERATOR 3 "Odd".=, OPERATOR 4 "Odd".>=, OPERATOR 5 "Odd".>,
    FUNCTION 1 "Odd".compare_days(int, int);
"""


class Keyed(NamedTuple):
    """A table. index: columns of its replica identity, where that is not the primary key. partitions: behind the
    columns, and SQL of the partitions; {0} is the table. needs: SQL without which there is no such type or
    collation; not every server can run it."""

    columns: str
    rows: str
    order: str = "k"
    index: str = ""
    partitions: tuple[str, ...] = ()
    needs: str = ""

    def create(self, name: str) -> str:
        """SQL of the table with its rows."""
        by, *parts = self.partitions or ("",)
        indexed = f"CREATE UNIQUE INDEX {name}_key ON {name} ({self.index});" if self.index else ""
        indexed += f"ALTER TABLE {name} REPLICA IDENTITY USING INDEX {name}_key;" if self.index else ""
        made = "".join(f"CREATE TABLE {part.format(name)};" for part in parts)
        return f"CREATE TABLE {name} ({self.columns}) {by}; {made} {indexed} INSERT INTO {name} {self.rows}"


def _of(kind: str, *values: str) -> Keyed:
    literals = ", ".join("$v$" + value + "$v$" for value in values)
    return Keyed(f"k {kind} PRIMARY KEY", f"SELECT CAST(v AS {kind}) FROM unnest(ARRAY[{literals}]) v")


_WORDS = ("", "a", "B", "b", "ä", "z", "Y", " ", "\\", "'", "%", "ab", "\n", "🐘", "é", ",", '"', "NULL")
_TWO = "SELECT i % 3, i FROM generate_series(1, 30) i"

KEYS: dict[str, Keyed] = {
    "int": Keyed("k int PRIMARY KEY", "SELECT i * 7 - 50 FROM generate_series(1, 30) i"),
    "text": _of("text", *_WORDS),
    "text in C": Keyed('k text COLLATE "C" PRIMARY KEY', _of("text", *_WORDS).rows),
    "text in an ICU collation": Keyed(
        'k text COLLATE "und-x-icu" PRIMARY KEY',
        _of("text", *_WORDS).rows,
        needs='CREATE COLLATION icu FROM "und-x-icu"',
    ),
    "text whose case does not count": Keyed(
        "k text COLLATE caseless PRIMARY KEY",
        _of("text", "", "a", "B", "ä", "z", "Y", "é", "E").rows,
        needs="CREATE COLLATION caseless (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
    ),
    "citext": Keyed(
        "k public.citext PRIMARY KEY",
        _of("public.citext", "", "a", "B", "z", "Y", "E").rows,
        "k USING OPERATOR(public.<)",
        needs="CREATE EXTENSION citext",
    ),
    "citext and a number": Keyed(
        "a public.citext, b int, PRIMARY KEY (a, b)",
        "SELECT chr(64 + i % 3 + i % 2 * 32), i FROM generate_series(1, 30) i",
        "a USING OPERATOR(public.<), b",
        needs="CREATE EXTENSION IF NOT EXISTS citext",
    ),
    "varchar": _of("varchar(5)", *_WORDS),
    "char": _of("char(5)", *_WORDS[1:7]),
    "internal char": _of('"char"', "a", "B", "", "\\377", "'"),
    "name": _of("name", *_WORDS),
    "uuid": Keyed("k uuid PRIMARY KEY", "SELECT md5(i::text)::uuid FROM generate_series(1, 20) i"),
    "numeric": _of("numeric", "NaN", "Infinity", "-Infinity", "0", "-0.1", "1.10", "1.2", "1e30", "-1e-20"),
    "float": _of("float8", "NaN", "Infinity", "-Infinity", "-0", "0.1", "0.30000000000000004", "5e-324", "-1e308"),
    "real": _of("real", "NaN", "Infinity", "0.1", "0.2", "1e-45", "16777216"),
    "enum": _of('"Odd".mood', "z", 'a "b"', "it's", "m"),
    "domain of an enum": _of('"Odd".of_mood', "z", 'a "b"', "it's", "m"),
    "domain of an enum and a number": Keyed(
        'a "Odd".of_mood, b int, PRIMARY KEY (a, b)',
        """SELECT m, i FROM unnest(enum_range(NULL::"Odd".mood)) m, generate_series(1, 9) i""",
        "a, b",
    ),
    "domain": _of('"Odd".code', "Code 1", "code 2", "ä"),
    "timestamptz": _of(
        "timestamptz", "infinity", "-infinity", "2024-01-01 00:00:00.000001+02", "0044-03-15 12:00 BC", "20240-01-01"
    ),
    "date": _of("date", "infinity", "-infinity", "4713-01-01 BC", "2024-02-29"),
    "time": _of("timetz", "24:00", "12:00+02", "12:00-02", "00:00"),
    "interval": _of("interval", "1 mon", "29 days", "31 days", "-1 year", "0", "25:00"),
    "bytea": _of("bytea", r"\x", r"\x00", r"\x00ff", r"\x5c", r"\x27", r"\xff"),
    "bool": _of("bool", "t", "f"),
    "bit": _of("varbit", "", "0", "1", "00", "01", "0000001"),
    "inet": _of("inet", "10.0.0.1", "10.0.0.0/8", "::1", "10.0.0.2"),
    "jsonb": _of("jsonb", "1", '"a"', '{"a": [1.50]}', "null", "[]"),
    "array": _of("text[]", '{"{a,b}"}', "{}", '{NULL,""}'),
    "range": Keyed("k int4range PRIMARY KEY", "SELECT int4range(i, i + 3) FROM generate_series(1, 9) i"),
    "row type": _of('"Odd".pair', '(1,"""x,\\\\")', "(2,)", "(,)"),
    "pg_lsn": _of("pg_lsn", "0/0", "16/B374D848", "1/0"),
    "two columns": Keyed("a int, b text, PRIMARY KEY (a, b)", _TWO, "a, b"),
    "two columns the other way round": Keyed("b int, a int, PRIMARY KEY (a, b)", _TWO, "a, b"),
    "quoted names": Keyed(
        '"ż ""ó"" %s" int, "SELECT" int, PRIMARY KEY ("ż ""ó"" %s", "SELECT")', _TWO, '"ż ""ó"" %s", "SELECT"'
    ),
    "a descending index": Keyed("a int NOT NULL, b int NOT NULL", _TWO, "a DESC, b DESC", "a DESC, b DESC"),
    "an index that goes both ways": Keyed(
        "a int NOT NULL, b int NOT NULL, c int NOT NULL",
        "SELECT i % 3, i % 5, i FROM generate_series(1, 60) i",
        "a, b DESC, c",
        "a, b DESC NULLS LAST, c NULLS FIRST",
    ),
    "an index of another collation": Keyed(
        "k text NOT NULL", _of("text", *_WORDS).rows, 'k COLLATE "C"', 'k COLLATE "C"'
    ),
    "an index of patterns": Keyed(
        "a text NOT NULL, b int NOT NULL",
        "SELECT s, i FROM unnest(ARRAY['a', 'B', 'c', 'D', 'ä', '']) s, generate_series(1, 3) i",
        "a USING ~<~, b",
        "a text_pattern_ops, b",
    ),
    "operators of one's own": Keyed(
        "a int NOT NULL, b int NOT NULL", _TWO.replace("30", "21"), "b % 7, a", 'b "Odd".weekdays, a'
    ),
    "partitions": Keyed(
        "a int, b int, PRIMARY KEY (a, b)",
        _TWO,
        "a, b",
        partitions=(
            "PARTITION BY HASH (a)",
            "{0}_1 PARTITION OF {0} FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
            "{0}_2 PARTITION OF {0} FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
        ),
    ),
}
"""What the key is -> the table."""
