"""The columns of the table of all types, with the SQL that shows a value in PostgreSQL's text form."""

from __future__ import annotations

from typing import NamedTuple

MYSQL, MARIADB = "mysql", "mariadb"


class Typed(NamedTuple):
    """A column. values: SQL of three rows. show: SQL of the text form, with the column's name for `@`; of MariaDB
    another one where there is. only: the server that has the type. compare: what the text form is compared as.
    """

    name: str
    type: str
    values: tuple[str, str, str]
    show: str = "CAST(@ AS CHAR)"
    show_mariadb: str = ""
    only: str = ""
    compare: str = "text"

    def shown(self, flavor: str) -> str:
        """SQL of the text form."""
        return (self.show_mariadb if flavor == MARIADB and self.show_mariadb else self.show).replace("@", self.name)


TEXT = "CONVERT(@ USING utf8mb4)"
BYTES = r"CONCAT('\\x', LOWER(HEX(@)))"
NUMBER = "CAST(@ + 0 AS CHAR)"
_TRIM = "IF({0} LIKE '%.%', TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM CAST({0} AS CHAR))), CAST({0} AS CHAR))"
TIME = _TRIM.format("@")
MOMENT = "IF(@ = 0, '0000-00-00 00:00:00', CONCAT(" + _TRIM.format("CONVERT_TZ(@, '+03:00', '+00:00')") + ", '+00'))"
GEOMETRY = """CONCAT('{"srid":', ST_SRID(@), ',"wkb":"', REPLACE(TO_BASE64(ST_AsBinary(@%s)), '\\n', ''), '"}')"""
_ON_MYSQL, _ON_MARIADB = GEOMETRY % ", 'axis-order=long-lat'", GEOMETRY % ""


def _bits(count: int) -> str:
    return f"LPAD(BIN(@ + 0), {count}, '0')"


def _times(name: str, kind: str, show: str, values: tuple[str, str, str], whole: str) -> list[Typed]:
    """A column for each number of digits. whole: the last value where there are none."""
    return [
        Typed(f"{name}{digits}", kind.format(digits), (*values[:2], values[2] if digits else whole), show)
        for digits in range(7)
    ]


_LABELS = ", ".join(f"'v{number}'" for number in range(300))
_MEMBERS = ", ".join(f"'s{number}'" for number in range(64))
_JSON = r"""'{"b": [1, 2.5, true, null, "é😀\\n\\""], "a": {"x": -1, "big": 18446744073709551615}, "": -70000}'"""
_JSONS = (_JSON, "'[]'", "NULL")
_DEEP = """JSON_OBJECT('n', CAST(12345678901234567890.0123456789 AS DECIMAL(40,10)), 'neg', CAST(-0.5 AS DECIMAL(3,1)),
    'd', CAST('2026-11-22' AS DATE), 'dt', CAST('2026-11-22 10:00:00.5' AS DATETIME(6)),
    't', CAST('-838:59:58.5' AS TIME(6)), 'i', -9223372036854775808, 'u', 18446744073709551615, 'e', 1e100,
    'b', CAST(X'00ff' AS BINARY), 'bool', false,
    'arr', JSON_ARRAY(1, -32768, 65535, -2147483648, 4294967295, 3000000000))"""
_LARGE = (
    """JSON_OBJECT('long', REPEAT('é', 40000), 'list', JSON_ARRAY(1, 100000, -100000, NULL, true, 4294967295, 1.5))"""
)

_NO_UUID = "00000000-0000-0000-0000-000000000000"

COLUMNS = [
    Typed("id", "INT", ("1", "2", "3")),
    Typed("t1", "TINYINT", ("-128", "127", "0")),
    Typed("t1u", "TINYINT UNSIGNED", ("255", "0", "NULL")),
    Typed("t2", "SMALLINT", ("-32768", "32767", "NULL")),
    Typed("t2u", "SMALLINT UNSIGNED", ("65535", "0", "1")),
    Typed("t3", "MEDIUMINT", ("-8388608", "8388607", "-1")),
    Typed("t3u", "MEDIUMINT UNSIGNED", ("16777215", "0", "5")),
    Typed("t4", "INT", ("-2147483648", "2147483647", "-1")),
    Typed("t4u", "INT UNSIGNED", ("4294967295", "0", "7")),
    Typed("t8", "BIGINT", ("-9223372036854775808", "9223372036854775807", "-1")),
    Typed("t8u", "BIGINT UNSIGNED", ("18446744073709551615", "9223372036854775808", "0")),
    Typed("b1", "BOOL", ("TRUE", "FALSE", "NULL")),
    Typed("zf", "INT(8) ZEROFILL", ("42", "0", "99999999"), NUMBER),
    Typed("f", "FLOAT", ("0.1", "-3.4028234e38", "16777216"), "CAST(@ AS DOUBLE)", compare="float4"),
    Typed("d", "DOUBLE", ("0.1", "-1.7976931348623157e308", "1e-300"), "@", compare="float8"),
    Typed("fu", "FLOAT UNSIGNED", ("1.5", "0", "3e10"), "CAST(@ AS DOUBLE)", compare="float4"),
    Typed(
        "n65",
        "DECIMAL(65,30)",
        (
            "'12345678901234567890123456789012345.123456789012345678901234567890'",
            "'-99999999999999999999999999999999999.999999999999999999999999999999'",
            "'0'",
        ),
    ),
    Typed("n10", "DECIMAL(10,0)", ("-1", "9999999999", "0")),
    Typed("n9", "DECIMAL(9,9)", ("0.123456789", "-0.000000001", "0")),
    Typed("n1", "DECIMAL(1,0)", ("-9", "5", "NULL")),
    Typed("n30", "DECIMAL(30,30)", ("'0.123456789012345678901234567890'", "'-0.000000000000000000000000000001'", "0")),
    Typed("n18", "DECIMAL(18,9) UNSIGNED", ("'123456789.987654321'", "0", "1")),
    Typed("n12", "DECIMAL(12,2)", ("-1234.5", "0.05", "-0.05")),
    Typed("bit1", "BIT(1)", ("b'1'", "b'0'", "NULL"), _bits(1)),
    Typed("bit12", "BIT(12)", ("b'101'", "b'111111111111'", "b'0'"), _bits(12)),
    Typed("bit64", "BIT(64)", ("18446744073709551615", "1", "9223372036854775808"), _bits(64)),
    Typed("y", "YEAR", ("2155", "1901", "0"), NUMBER),
    Typed("da", "DATE", ("'2026-11-22'", "'0000-00-00'", "'2026-00-00'")),
    Typed("dm", "DATE", ("'9999-12-31'", "'1000-01-01'", "NULL")),
    *_times(
        "dt",
        "DATETIME({})",
        TIME,
        ("'2026-11-22 23:59:58.123456'", "'0000-00-00 00:00:00'", "'9999-12-31 00:00:00.5'"),
        "'9999-12-31 00:00:00'",
    ),
    *_times(
        "ts",
        "TIMESTAMP({}) NULL",
        MOMENT,
        ("'2026-11-22 23:59:58.123456'", "'0000-00-00 00:00:00'", "'1970-01-01 03:00:01.5'"),
        "'2038-01-19 06:14:07'",
    ),
    *_times("ti", "TIME({})", TIME, ("'-838:59:58.000001'", "'838:59:59'", "'-00:00:00.5'"), "'-00:00:01'"),
    Typed("tb6", "TIME(6)", ("'00:00:00'", "'-00:00:00.000001'", "'101:02:03.120000'"), TIME),
    Typed("c10", "CHAR(10)", ("'abc  '", "'über'", "''"), TEXT),
    Typed("c255", "CHAR(255)", ("'x'", "REPEAT('ü', 255)", "NULL"), TEXT),
    Typed("cl", "CHAR(200) CHARACTER SET latin1", ("'é€'", "''", "REPEAT('é', 200)"), TEXT),
    Typed("v40", "VARCHAR(40)", ("'a  '", "'😀'", "''"), TEXT),
    Typed("v300", "VARCHAR(300)", ("REPEAT('x', 300)", "'é'", "NULL"), TEXT),
    Typed("latin1", "VARCHAR(40) CHARACTER SET latin1", ("'naïve €œ'", "X'818d8f909d'", "'plain'"), TEXT),
    Typed("gbk", "VARCHAR(40) CHARACTER SET gbk", ("'中文'", "'a中b'", "'ascii'"), TEXT),
    Typed("sjis", "VARCHAR(40) CHARACTER SET sjis", ("'日本語'", "'ソ'", "'x'"), TEXT),
    Typed("utf16", "VARCHAR(40) CHARACTER SET utf16", ("'😀é'", "'ab'", "''"), TEXT),
    Typed("utf32", "VARCHAR(40) CHARACTER SET utf32", ("'😀é'", "'ab'", "''"), TEXT),
    Typed("ucs2", "VARCHAR(40) CHARACTER SET ucs2", ("'é'", "'ab'", "''"), TEXT),
    Typed("utf8mb3", "VARCHAR(40) CHARACTER SET utf8mb3", ("'é中'", "'ab'", "''"), TEXT),
    Typed("ascii7", "VARCHAR(40) CHARACTER SET ascii", ("'e'", "'ab'", "''"), TEXT),
    Typed("koi8r", "VARCHAR(40) CHARACTER SET koi8r", ("'привет'", "'ab'", "''"), TEXT),
    Typed("bi", "BINARY(4)", ("X'0100'", "X'00000000'", "X'ffffffff'"), BYTES),
    Typed("vb", "VARBINARY(300)", ("X'00'", "X''", "REPEAT(X'ab', 300)"), BYTES),
    Typed("tt", "TINYTEXT", ("'tiny'", "''", "NULL"), TEXT),
    Typed("tx", "TEXT", ("'téxt'", "REPEAT('y', 500)", "NULL"), TEXT),
    Typed("mt", "MEDIUMTEXT", ("'m'", "REPEAT('z', 66000)", "NULL"), TEXT),
    Typed("lt", "LONGTEXT", ("'l'", "''", "NULL"), TEXT),
    Typed("tb", "TINYBLOB", ("X'0001'", "''", "NULL"), BYTES),
    Typed("bl", "BLOB", ("X'deadbeef'", "''", "NULL"), BYTES),
    Typed("mb", "MEDIUMBLOB", ("X'00'", "''", "NULL"), BYTES),
    Typed("lb", "LONGBLOB", ("X'7f'", "''", "NULL"), BYTES),
    Typed("en", "ENUM('red', 'grün', 'it''s')", ("'grün'", "'it''s'", "''"), TEXT),
    Typed("en2", f"ENUM({_LABELS})", ("'v299'", "'v0'", "NULL"), TEXT),
    Typed("enl", "ENUM('é', 'b') CHARACTER SET latin1", ("'é'", "'b'", "NULL"), TEXT),
    Typed("se", "SET('a', 'b', 'c', 'd')", ("'d,a'", "''", "'b,c'"), TEXT),
    Typed("se64", f"SET({_MEMBERS})", ("'s63,s0'", "'s31'", "NULL"), TEXT),
    Typed("j", "JSON", _JSONS, "CAST(@ AS CHAR)", compare="json"),
    Typed("j2", "JSON", (_DEEP, _LARGE, "'\"text\"'"), "CAST(@ AS CHAR)", only=MYSQL, compare="json"),
    Typed(
        "pt",
        "POINT",
        ("ST_GeomFromText('POINT(1 2)')", "NULL", "ST_GeomFromText('POINT(-1.5 0)', 4326)"),
        _ON_MYSQL,
        _ON_MARIADB,
    ),
    Typed(
        "ge",
        "GEOMETRY",
        ("ST_GeomFromText('LINESTRING(0 0,1 1)')", "NULL", "ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 1))')"),
        _ON_MYSQL,
        _ON_MARIADB,
    ),
    Typed(
        "ve",
        "VECTOR(3)",
        ("STRING_TO_VECTOR('[1,0.1,-2.5]')", "NULL", "STRING_TO_VECTOR('[1]')"),
        "VECTOR_TO_STRING(@)",
        only=MYSQL,
        compare="json",
    ),
    Typed("gb18030", "VARCHAR(40) CHARACTER SET gb18030", ("'😀中'", "'ab'", "''"), TEXT, only=MYSQL),
    Typed(
        "uu", "UUID", ("'123e4567-e89b-12d3-a456-426655440000'", f"'{_NO_UUID}'", "NULL"), only=MARIADB, compare="uuid"
    ),
    Typed("i6", "INET6", ("'2001:db8::ff00:42:8329'", "'::1'", "NULL"), only=MARIADB, compare="inet"),
    Typed("i4", "INET4", ("'192.168.0.1'", "'0.0.0.0'", "NULL"), only=MARIADB, compare="inet"),
    Typed("vc", "VARCHAR(200) COMPRESSED", ("REPEAT('abc', 50)", "'x'", "''"), TEXT, only=MARIADB),
    Typed("tc", "TEXT COMPRESSED", ("REPEAT('hello ', 100)", "'y'", "NULL"), TEXT, only=MARIADB),
    Typed(
        "lc",
        "VARCHAR(200) COMPRESSED CHARACTER SET latin1",
        ("REPEAT('é', 150)", "'é'", "NULL"),
        TEXT,
        only=MARIADB,
    ),
    Typed("bc", "BLOB COMPRESSED", ("REPEAT(X'00ff', 100)", "X'01'", "NULL"), BYTES, only=MARIADB),
]
