"""The steps of a rule on a real local Spark: coerce, mask, drop, rename, where, with a query and a function behind."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import string
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from psql_streamer.errors import HandlerRefused
from psql_streamer.interfaces import Published
from psql_streamer.model import Changes, Column, Relation, ReplicaIdentity
from psql_streamer.pgtype import Attribute, JsonForm, Logical, PgType, PostgresType
from psql_streamer.pgtypes.builtin import BY_OID
from tests.columns import postgres_column, postgres_table
from tests.database import Database
from tests.source_at_work import read_all, streaming
from tests.spark_changes import (
    DELETE,
    INSERT,
    UPDATE,
    Texts,
    batch,
    changes,
    column,
    lacking,
    names,
    only,
    shop,
    values,
)

SECRET = "a secret of the test, long enough"
KEY = {"mask_secret": SECRET}
BY_KEY = ReplicaIdentity.DEFAULT

PEOPLE = (column("id", 25, key=True), column("email", 25), column("card", 25), column("age", 23))


def people(*rows: tuple[str, str | None, str | None, str | None]) -> Changes:
    texts = {at: [None if one is None else one.encode() for one in row] for at, row in enumerate(rows)}
    return changes([INSERT] * len(rows), texts, {}, PEOPLE, table="people")


def salted(text: bytes) -> bytes:
    return hashlib.sha256(SECRET.encode() + text).hexdigest().encode()


# --- order


def add_columns(df: Any) -> Any:
    """A rule by function."""
    from pyspark.sql.functions import col

    return df.withColumn("double", col("total") * 2)


def test_each_step_sees_what_the_earlier_ones_made(spark: Any) -> None:
    rule = {
        "coerce": {"amount": "int"},
        "mask": {"customer": {"method": "partial", "keep_first": 1, "keep_last": 0}},
        "drop": ["meta"],
        "rename": {"amount": "total", "customer": "who"},
        "where": "total > 5 AND who LIKE '_**%'",
        "sql": "SELECT *, total + 1 AS next FROM changes",
        "function": f"{__name__}:add_columns",
    }
    result = only(spark(orders=rule).handle(batch(shop())))
    assert names(result) == ["id", "total", "who", "next", "double"]
    assert [values(result, name) for name in names(result)] == [
        [b"1", b"2"], [b"10", b"20"], [b"a**", b"b**"], [b"11", b"21"], [b"20", b"40"],
    ]  # fmt: skip
    assert result.op.tolist() == [INSERT, UPDATE, DELETE], "the delete's old image has 7.00 of c***"
    assert values(result, "who", "before") == [b"c***"]


def test_columns_that_change_places_keep_their_texts_and_the_key(spark: Any) -> None:
    rule = {"rename": {"id": "customer", "customer": "id", "_commit_lsn": "version"}}
    result = only(spark(orders=rule).handle(batch(shop())))
    assert names(result) == ["customer", "amount", "id", "meta", "version"]
    assert values(result, "customer") == [b"1", b"2", b"4"]
    assert values(result, "id", "before") == [b"old bob", b"carl"]
    assert [one.name for one in result.columns if one.key] == ["customer"]
    assert values(result, "meta") == [b'{"a": 1}', b'{"a": 2}', None]


# --- masks


def test_every_method_masks_both_images_and_leaves_null(spark: Any) -> None:
    columns = (*PEOPLE, column("note", 25), column("state", 25))
    row: Texts = [b"k", b"ann@example.com", b"4111-1111", b"42", b"a note", b"new"]
    given = changes(
        [UPDATE, INSERT], {0: row, 1: [b"l", None, None, None, None, None]}, {0: row}, columns, table="people"
    )
    mask = {
        "email": "hash",
        "card": "partial",
        "age": {"method": "constant", "value": 0},
        "note": "null",
        "state": "constant",
    }
    result = only(spark(KEY, people={"mask": mask}).handle(batch(given)))
    masked = [salted(b"ann@example.com"), b"*****1111", b"0", None, b"***"]
    for side, rows in (("after", [masked, [None] * 5]), ("before", [masked])):
        found = [values(result, name, side) for name in ("email", "card", "age", "note", "state")]
        assert [list(one) for one in zip(*found, strict=True)] == rows
    assert result.columns[3] == postgres_column("age", 23), "a constant has the column's type"


def test_a_mask_of_a_missing_value_is_missing(spark: Any) -> None:
    given = changes(
        [UPDATE, DELETE],
        {0: [b"k", None, b"1", b"2"]},
        {1: [b"l", None, None, None]},
        PEOPLE,
        {1: [True]},
        "people",
        BY_KEY,
    )
    mask = {"email": "null", "card": {"method": "constant", "value": "x"}, "age": "hash"}
    result = only(spark(KEY, people={"mask": mask}).handle(batch(given)))
    assert lacking(result) == {"email": [True]}
    assert lacking(result, "before") == {"email": [True], "card": [True], "age": [True]}


@pytest.mark.parametrize(
    ("text", "masked"), [("12345678", "12**5678"), ("123456", "******"), ("", ""), ("äöü1234", "äö*1234")]
)
def test_a_value_of_no_more_than_the_characters_that_are_kept_is_masked_whole(
    spark: Any, text: str, masked: str
) -> None:
    mask = {"email": {"method": "partial", "keep_first": 2, "keep_last": 4}}
    result = only(spark(people={"mask": mask}).handle(batch(people(("k", text, None, None)))))
    assert values(result, "email") == [masked.encode()]


def test_tokens_have_the_shape_of_values_and_no_two_are_alike(spark: Any) -> None:
    texts = [f"{number:03d}" for number in range(1000)]
    texts += ["Ann.Lee@example.com", "DE89 3704 0044 0532 0130 00", "", "x", "ünïcode", "a" * 300]
    handler = spark(KEY, people={"mask": {"email": "tokenise"}})
    given = people(*((str(at), text, None, None) for at, text in enumerate(texts)))
    result = only(handler.handle(batch(given)))
    tokens = [token.decode() for token in values(result, "email")]
    assert sorted(tokens[:1000]) == texts[:1000], "a permutation"
    assert sum(token == text for token, text in zip(tokens[:1000], texts[:1000], strict=True)) < 20
    shapes = [re.sub("[a-z]", "a", re.sub("[A-Z]", "A", re.sub("[0-9]", "9", token))) for token in tokens[1000:]]
    assert shapes[:4] == ["Aaa.Aaa@aaaaaaa.aaa", "AA99 9999 9999 9999 9999 99", "", "a"]
    assert re.fullmatch("[0-9a-f]{32}", tokens[1004]), "characters beyond ASCII have no shape"
    assert shapes[5] == "a" * 300
    assert len(set(tokens[1005])) > 10
    assert only(handler.handle(batch(given))).after.columns[1].equals(result.after.columns[1])
    other = only(
        spark({"mask_secret": "another secret of the test"}, people={"mask": {"email": "tokenise"}}).handle(
            batch(given)
        )
    )
    assert values(other, "email")[1000] != values(result, "email")[1000]


@pytest.mark.soak
def test_tokens_are_what_their_description_says_and_a_long_text_takes_a_time_as_long_as_it_is(spark: Any) -> None:
    texts = [("Ab-9 " * 40_000)[:length] for length in (0, 1, 2, 63, 64, 65, 130, 16_383, 16_384, 16_385, 200_000)]
    given = people(*((str(at), text, None, None) for at, text in enumerate(texts)))
    result = only(spark(KEY, people={"mask": {"email": "tokenise"}}).handle(batch(given)))
    assert values(result, "email") == [tokenise(text) for text in texts]


def tokenise(text: str) -> bytes:
    """The token of an ASCII text: a Feistel network of six rounds."""
    key = hmac.digest(SECRET.encode(), b"psql-streamer tokenise", "sha512")
    first, second = text[: len(text) // 2], text[len(text) // 2 :]
    for turn in range(6):
        half = hmac.digest(key, f"half:{second}".encode(), "sha512").hex() if len(second) > 8192 else second
        blocks = range((len(first) + 31) // 32)
        stream = "".join(hmac.digest(key, f"{turn}:{block}:{half}".encode(), "sha512").hex() for block in blocks)
        shifts = (int(stream[at : at + 4], 16) for at in range(0, 4 * len(first), 4))
        first, second = second, "".join(map(shift_character, first, shifts))
    return (first + second).encode()


def shift_character(character: str, by: int) -> str:
    for alphabet in (string.digits, string.ascii_lowercase, string.ascii_uppercase):
        if character in alphabet:
            return alphabet[(alphabet.index(character) + by) % len(alphabet)]
    return character


def test_deletes_have_the_masked_and_renamed_key_of_their_rows(spark: Any) -> None:
    given = changes(
        [INSERT, DELETE, UPDATE],
        {0: [b"ann", b"a", None, None], 2: [b"bob", b"b", None, None]},
        {1: [b"ann", None, None, None], 2: [b"ann", None, None, None]},
        PEOPLE, table="people", identity=BY_KEY,
    )  # fmt: skip
    result = only(spark(KEY, people={"mask": {"id": "tokenise"}, "rename": {"id": "who"}}).handle(batch(given)))
    assert [one.name for one in result.columns if one.key] == ["who"]
    (ann, bob), old = values(result, "who"), values(result, "who", "before")
    assert old == [ann, ann]
    assert ann != bob
    assert re.fullmatch(b"[a-z]{3}", ann)


def test_tables_under_one_glob_are_masked_as_one(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    handler = spark(KEY, **{"shop_*": {"mask": {"email": "hash"}, "where": "age > 1", "rename": {"_table": "origin"}}})
    row = {
        at: changes([INSERT], {0: [b"k", b"ann", None, b"%d" % at]}, {}, PEOPLE, table=f"shop_{at}") for at in (1, 2, 3)
    }
    parts = [replace(part, batch_order=np.array([at])) for at, part in row.items()]
    runs: list[int] = []
    run = handler._runner.run
    monkeypatch.setattr(handler._runner, "run", lambda job: (runs.append(len(job.changes)), run(job))[1])
    result = handler.handle(batch(*parts)).changes
    assert runs == [3]
    assert [(part.relation.table, values(part, "email"), values(part, "origin")) for part in result] == [
        (f"shop_{at}", [salted(b"ann")], [b"shop_%d" % at]) for at in (2, 3)
    ]


# --- where


def test_where_lets_pass_what_it_cannot_judge(spark: Any) -> None:
    given = changes(
        [UPDATE, UPDATE, UPDATE, DELETE],
        {
            0: [b"a", None, b"1", b"5"],
            1: [b"b", None, b"2", b"6"],
            2: [b"c", b"x", b"1", b"7"],
        },
        {3: [b"d", None, None, None]},
        PEOPLE,
        {1: [True, True, False]},
        "people",
        BY_KEY,
    )
    handler = spark(people={"rename": {"email": "mail"}, "where": "card = '1' AND mail <> 'x'"})
    result = only(handler.handle(batch(given)))
    assert values(result, "id") == [b"a"], "no mail is known of b, but its card is 2"
    assert values(result, "id", "before") == [b"d"]
    assert handler.stats()["passed_unknown"] == 1


# --- coerce

POINT = PgType(
    "place", 90001, 0, JsonForm.OBJECT, attributes=(Attribute("town", BY_OID[25]), Attribute("zip", BY_OID[23]))
)
HSTORE = PgType("hstore", 90002, 0, JsonForm.TEXT, logical=Logical.HSTORE)
NESTED = (
    column("id", 23, key=True),
    column("tags", 1009),
    column("grid", 1007),
    Column("place", PostgresType(90001, known=POINT)),
    Column("more", PostgresType(90002, known=HSTORE)),
    column("span", 3904),
    column("meta", 3802),
)
COERCE = {
    "tags": "array<string>",
    "grid": "array<array<int>>",
    "place": "struct<t: string, z: int>",
    "more": "map<string, string>",
    "span": "struct<lower: int, upper: int, lower_inc: boolean, upper_inc: boolean>",
    "meta": "map<string, array<int>>",
}


def nested(*rows: Texts) -> Changes:
    return changes([INSERT] * len(rows), dict(enumerate(rows)), {}, NESTED, table="nested")


GOOD: Texts = [b"1", b'{a,"b c",NULL}', b"{{1,2},{3,4}}", b"(Bonn,53111)", b'"k"=>"v"', b"[1,5)", b'{"x": [1]}']


def test_postgresql_s_nested_types_become_spark_s(spark: Any) -> None:
    sql = "SELECT *, size(tags) AS n, grid[1][0] AS g, place.z AS z, more['k'] AS k, span.upper AS u FROM changes"
    result = only(spark(nested={"coerce": COERCE, "sql": sql}).handle(batch(nested(GOOD, [b"2", *[None] * 6]))))
    assert [values(result, name)[0] for name in names(result)[1:7]] == [
        ["a", "b c", None],
        [[1, 2], [3, 4]],
        {"t": "Bonn", "z": 53111},
        [("k", "v")],
        {"lower": 1, "upper": 5, "lower_inc": True, "upper_inc": False},
        [("x", [1])],
    ]
    assert [values(result, name) for name in "ngzku"] == [
        [b"3", None], [b"3", None], [b"53111", None], [b"v", None], [b"5", None],
    ]  # fmt: skip


def test_what_has_another_form_stops_with_its_identity_or_is_put_aside(spark: Any, caplog: Any) -> None:
    bad = nested(GOOD, [b"2", None, b"{secret}", *[None] * 4], [b"3", *[None] * 3, b"secret", None, b'{"x": "secret"}'])
    with pytest.raises(
        HandlerRefused, match=r"the value of column grid in change \(16/B374D848, 1\) cannot be coerced"
    ):
        spark(nested={"coerce": COERCE}).handle(batch(bad))
    result = spark(nested={"coerce": COERCE, "on_error": "dead-letter"}).handle(batch(bad))
    assert only(result).seq.tolist() == [0]
    assert {one.column: one.changes.seq.tolist() for one in result.rejections} == {"grid": [1], "more": [2]}
    assert values(result.rejections[0].changes, "grid") == [b"{secret}"]
    assert "secret" not in caplog.text


# --- the review


def tables(*columns: tuple[Column, ...]) -> Published:
    listed: list[Relation] = [
        postgres_table(at, "public", f"people_{at}", BY_KEY, some) for at, some in enumerate(columns)
    ]
    return {"db1": listed}


def told(spark: Any, published: Published, **rule: Any) -> list[str]:
    return [str(finding) for finding in spark(KEY, **{"people_*": rule}).review(published)]


@pytest.mark.parametrize(
    ("rule", "finding"),
    [
        ({"mask": {"emal": "hash"}}, "there is no column emal to mask; did you mean email?: correct its name"),
        ({"drop": ["crad"]}, "there is no column crad to drop; did you mean card?: correct its name"),
        ({"rename": {"agee": "x"}}, "there is no column agee to rename; did you mean age?: correct its name"),
        ({"where": "agee > 1"}, "[UNRESOLVED_COLUMN.WITH_SUGGESTION]"),
        ({"rename": {"age": "old"}, "where": "age > 1"}, "[UNRESOLVED_COLUMN.WITH_SUGGESTION]"),
        ({"rename": {"age": "email"}}, "behind its steps the table has two columns named email: rename to another"),
        ({"rename": {"age": "_op"}}, "_op is the name of a column that the handler adds"),
        ({"mask": {"age": "partial"}}, "column age cannot be masked: partial takes text, and its type is int: coerce"),
        (
            {"mask": {"age": {"method": "constant", "value": "x"}}},
            "column age cannot be masked: the constant is no int: correct its value",
        ),
        ({"drop": ["id"]}, "the key column id is left out"),
        ({"mask": {"id": "null"}}, "the mask of the key column id gives all rows the same key: use hash or tokenise"),
    ],
)
def test_a_step_that_does_not_fit_is_found_before_the_first_row(spark: Any, rule: Any, finding: str) -> None:
    (found,) = told(spark, tables(PEOPLE), **rule)
    assert finding in found
    assert SECRET not in found
    assert SECRET.encode().hex() not in found.lower()


def test_columns_that_some_tables_lack_are_errors_unless_the_rule_is_optional(spark: Any) -> None:
    rule = {"mask": {"email": "hash"}, "drop": ["card", "nowhere"]}
    assert [finding.partition(": there")[2] for finding in told(spark, tables(PEOPLE, PEOPLE[:1]), **rule)] == [
        " is no column nowhere to drop; known: age, card, email, id: correct its name",
        " is no column email to mask; known: id: correct its name",
        " is no column card to drop; known: id: correct its name",
        " is no column nowhere to drop; known: id: correct its name",
    ]
    (found,) = told(spark, tables(PEOPLE, PEOPLE[:1]), **rule, optional=True)
    assert "no table of rule 'people_*' has a column nowhere to drop" in found
    handler = spark(KEY, **{"people_*": {"mask": {"email": "hash"}, "optional": True}})
    given = changes([INSERT], {0: [b"k"]}, {}, PEOPLE[:1], table="people_9")
    assert values(only(handler.handle(batch(given))), "id") == [b"k"]


@pytest.mark.parametrize(
    ("alter", "told"),
    [
        ("RENAME email TO e_mail", ", and what is new goes out as it is: e_mail"),
        ("DROP email", ""),
        ("ADD more text", None),
    ],
)
def test_an_optional_step_whose_column_gets_lost_in_the_stream_is_told_of_once(
    spark: Any, database: Database, caplog: pytest.LogCaptureFixture, alter: str, told: str | None
) -> None:
    database.execute("CREATE TABLE people (id int PRIMARY KEY, email text); CREATE PUBLICATION p FOR TABLE people")
    handler = spark(people={"mask": {"email": "null", "phone": "null"}, "optional": True})
    with streaming(database) as source, caplog.at_level(logging.WARNING, "psql_streamer.spark"):
        for change in ("", f"ALTER TABLE people {alter};"):
            database.execute(f"{change} INSERT INTO people (id) SELECT coalesce(max(id), 0) + 1 FROM people")
            for one in read_all(source, database):
                for _ in range(2):
                    handler.handle(one)
    what = "public.people, rule 'people': the table has no column email any more, which the rule is to mask: it is left"
    assert caplog.messages == ([] if told is None else [f"{what} out{told}"])
