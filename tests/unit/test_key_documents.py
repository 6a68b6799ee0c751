"""Keys as documents: every format's keys are read as the text forms that they were made of, or refused."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from psql_streamer.events.routing import Router
from psql_streamer.lsn import Lsn
from psql_streamer.model import Batch, Changes, Column, ReplicaIdentity, Transactions
from psql_streamer.pgoutput.wal_position import WalPosition
from psql_streamer.pgtype import PostgresType
from psql_streamer.pgtypes.builtin import BY_OID, OIDS
from psql_streamer.snapshot.key_documents import BadKeyError, read_key_documents
from psql_streamer.snapshots import KeyForm
from tests.columns import postgres_table
from tests.decoding import SOURCE
from tests.encoding import encoder_of

_NUMERIC_8_3 = (8 << 16 | 3) + 4
_SAME = "same"

# type, typmod, text form of a value, the text that a key of debezium is read as, if that is another one
_VALUES = [
    ("int2", -1, "-7", _SAME),
    ("int8", -1, "9223372036854775807", _SAME),
    ("bool", -1, "t", "true"),
    ("text", -1, 'o\'clock "ż" \\ \n', _SAME),
    ("bpchar", 7, "ab ", _SAME),
    ("uuid", -1, "b68a35a7-17ad-35b3-af2a-ae46edb4545a", _SAME),
    ("bytea", -1, "\\x00ff10", _SAME),
    ("bytea", -1, "\\x", _SAME),
    ("numeric", -1, "-12345678901234567890.05", _SAME),
    ("numeric", -1, "0", _SAME),
    ("numeric", -1, "NaN", _SAME),
    ("numeric", _NUMERIC_8_3, "-0.005", _SAME),
    ("numeric", _NUMERIC_8_3, "12345.600", _SAME),
    ("float8", -1, "1e+100", "1e+100"),
    ("float8", -1, "1", "1.0"),
    ("float8", -1, "-Infinity", _SAME),
    ("date", -1, "2024-02-29", _SAME),
    ("date", -1, "1582-10-04", _SAME),
    ("time", -1, "24:00:00", "24:00:00.000000"),
    ("time", 3, "01:02:03.004", "01:02:03.004000"),
    ("timestamp", -1, "2024-02-29 12:34:56.789012", _SAME),
    ("timestamp", -1, "1900-01-01 00:00:00", _SAME),
    ("timestamp", 3, "2024-02-29 12:34:56.789", "2024-02-29 12:34:56.789000"),
    ("timestamptz", -1, "2024-02-29 12:34:56.789+00", "2024-02-29T12:34:56.789000Z"),
    ("inet", -1, "10.0.0.1/8", _SAME),
    ("jsonb", -1, '{"a": [1, "b"]}', _SAME),
]


def _column(name: str, kind: str, typmod: int = -1) -> Column:
    return Column(name, PostgresType(OIDS[kind], typmod, BY_OID[OIDS[kind]]), key=True)


def _key_of(form: str, columns: tuple[Column, ...], texts: tuple[str, ...], schemas: bool = False) -> bytes:
    """As a sink writes it."""
    relation = postgres_table(16400, "public", "t", ReplicaIdentity.DEFAULT, columns)
    arrays = [pa.array([text.encode()], pa.binary()) for text in texts]
    changes = Changes.from_new_rows(relation, arrays, np.zeros(1, np.int32))
    transactions = Transactions(np.array([9], np.uint64), np.array([0]), pa.array([7], pa.uint32()))
    batch = Batch(SOURCE, WalPosition(Lsn(9)).position, transactions, (changes,), nbytes=100)
    (key,) = encoder_of(form, Router({}, "", "t"), {}, schemas=schemas).encode(batch).keys.to_pylist()
    assert isinstance(key, bytes)
    return key


@pytest.mark.parametrize(("kind", "typmod", "text", "expected"), _VALUES)
@pytest.mark.parametrize("schemas", [False, True])
def test_keys_of_debezium_are_read_as_what_they_were_made_of(
    kind: str, typmod: int, text: str, expected: str, schemas: bool
) -> None:
    column = _column("k", kind, typmod)
    key = _key_of("debezium", (column,), (text,), schemas)
    ((found,),) = read_key_documents([key], [column], KeyForm.DEBEZIUM, 0)
    same = text if expected is _SAME else expected
    assert found in (same, f"{same}.000000") if kind == "timestamp" else found == same


def test_zeros_that_a_key_of_debezium_does_not_say_make_no_other_key() -> None:
    column = _column("k", "numeric")
    keys = {_key_of("debezium", (column,), (text,)) for text in ("1.50", "1.5")}
    assert {read_key_documents([key], [column], KeyForm.DEBEZIUM, 0)[0][0] for key in keys} <= {"1.50", "1.5"}


@pytest.mark.parametrize("typmod", [-1, _NUMERIC_8_3])
def test_a_decimal_that_debezium_wrote_as_a_number_is_read_as_its_digits(typmod: int) -> None:
    assert read_key_documents([b'{"k":1234}'], [_column("k", "numeric", typmod)], KeyForm.DEBEZIUM, 0) == [("1234",)]


@pytest.mark.parametrize(("kind", "typmod", "text"), [value[:3] for value in _VALUES])
@pytest.mark.parametrize("form", ["event", "envelope", "flat"])
def test_keys_of_other_formats_are_read_as_what_they_were_made_of(kind: str, typmod: int, text: str, form: str) -> None:
    column = _column("k", kind, typmod)
    ((found,),) = read_key_documents([_key_of(form, (column,), (text,))], [column], KeyForm.JSON, 0)
    iso = {"t": "true", **({text: text.replace(" ", "T").replace("+00", "Z")} if kind.startswith("timestamp") else {})}
    assert found == iso.get(text, text)


def test_columns_go_by_name() -> None:
    columns = [_column("a", "int4"), _column("b", "text")]
    found = read_key_documents([b'{"b":"x","a":1}', b'{ "a" : 2 , "b" : "y" }'], columns, KeyForm.JSON, 0)
    assert found == [("1", "x"), ("2", "y")]


_REFUSED = [
    (
        "int4",
        KeyForm.JSON,
        b'{"secret":1}',
        r"^key 8 does not name the columns of the table's key, which are k, and no",
    ),
    ("int4", KeyForm.JSON, b'{"k":1,"secret":2}', r"^key 8 does not name the columns"),
    ("int4", KeyForm.JSON, b'["secret"]', r"^key 8 does not name the columns"),
    ("int4", KeyForm.JSON, b'{"k":null}', r"^key 8 has something in k that is no value of the column's type$"),
    ("int4", KeyForm.JSON, b'{"k":["secret"]}', r"^key 8 has something in k that is no value"),
    ("text", KeyForm.JSON, b'{"k":"secret\\u0000"}', r"^key 8 has a NUL in k$"),
    ("text", KeyForm.JSON, b'{"k":"secret\\ud800"}', r"^key 8 "),
    ("bytea", KeyForm.JSON, b'{"k":"secret!"}', r"^key 8 has something in k"),
    (
        "int4",
        KeyForm.JSON,
        b'{"schema":{},"payload":"secret"}',
        r"^key 8 does not name the columns|^key 8 has a schema",
    ),
    ("interval", KeyForm.DEBEZIUM, b'{"k":12345}', r"^key 8 has something in k"),
    ("varbit", KeyForm.DEBEZIUM, b'{"k":"AAAA"}', r"^key 8 has something in k"),
    ("date", KeyForm.DEBEZIUM, b'{"k":99999999999}', r"^key 8 has something in k"),
    ("date", KeyForm.DEBEZIUM, b'{"k":-2147472692}', r"^key 8 has something in k"),
    ("timestamp", KeyForm.DEBEZIUM, b'{"k":9223372036854775807}', r"^key 8 has something in k"),
    ("numeric", KeyForm.DEBEZIUM, b'{"k":{"scale":1,"secret":"AA=="}}', r"^key 8 has something in k"),
    ("numeric", KeyForm.DEBEZIUM, b'{"k":{"scale":999999999,"value":"AQ=="}}', r"^key 8 has something in k"),
]


@pytest.mark.parametrize(("kind", "form", "document", "reason"), _REFUSED)
def test_what_is_no_key_is_refused_by_its_number_and_without_a_value(
    kind: str, form: KeyForm, document: bytes, reason: str
) -> None:
    good = {"interval": "P1D", "varbit": "1"}.get(kind)
    before = [] if good else [json.dumps({"k": "2020-01-01" if kind in ("date", "timestamp") else "1234"}).encode()]
    with pytest.raises(BadKeyError, match=reason) as caught:
        read_key_documents([*before, document], [_column("k", kind)], form, 7 - len(before))
    assert "secret" not in str(caught.value)


def test_digits_of_any_number_are_read() -> None:
    column = _column("k", "numeric")
    text = "7" * 5000 + "." + "3" * 3000
    ((found,),) = read_key_documents([_key_of("debezium", (column,), (text,))], [column], KeyForm.DEBEZIUM, 0)
    assert found == text
