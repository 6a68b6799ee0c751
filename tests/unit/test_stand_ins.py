"""Stand-ins for values: equal for equal ones, different for different ones, and of the same shape."""

from __future__ import annotations

import json
import re
from datetime import date, timedelta
from decimal import Decimal
from random import Random

import pyarrow as pa
import pytest

from psql_streamer.model import ArrowType, Column, Relation
from psql_streamer.pgtype import JsonForm, PgType
from psql_streamer.pgtypes.builtin import BY_OID, OIDS
from psql_streamer.trial.scrubbing import Scrubber
from psql_streamer.trial.stand_ins import StandIns


def count_draws(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Has one element for each draw from now on."""
    drawn: list[object] = []

    def note(seed: bytes) -> Random:
        drawn.append(None)
        return Random(seed)

    monkeypatch.setattr("psql_streamer.trial.stand_ins.Random", note)
    return drawn


def kind_of(name: str) -> PgType:
    return BY_OID[OIDS[name]]


@pytest.mark.parametrize(
    ("name", "text", "shape"),
    [
        ("text", "Ann.Smith@Example.org", r"[A-Z][a-z]{2}\.[A-Z][a-z]{4}@[A-Z][a-z]{6}\.[a-z]{3}"),
        ("text", "+49 (0)30 1234", r"\+\d\d \(\d\)\d\d \d{4}"),
        ("text", "żółć ÄÖ 東京", r"[^\W\d]{4} [^\W\d]{2} [\u4e00-\u9fa5]{2}"),
        ("text", "", ""),
        ("int4", "-12345", r"-\d{5}"),
        ("int8", "9223372036854775807", r"[1-9]\d{18}"),
        ("numeric", "-1234.50", r"-[1-9]\d{3}\.\d{2}"),
        ("numeric", "0.07", r"0\.\d{2}"),
        ("numeric", "NaN", "NaN"),
        ("float8", "1.7976931348623157e+308", r"1\.\d{16}e\+308"),
        ("date", "2024-02-29", r"(19|20)\d\d-\d\d-\d\d"),
        ("timestamptz", "2024-02-29 23:59:59.5+05:30", r"(19|20)\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.[1-9]\+05:30"),
        ("timestamp", "infinity", "infinity"),
        ("interval", "1 year 2 mons -3 days +04:05:06.789", r"\d year \d mons -\d days \+\d\d:\d\d:\d\d\.\d{3}"),
        ("uuid", "123e4567-e89b-42d3-a456-426614174000", r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-a[0-9a-f-]{16}"),
        ("bytea", "\\xdeadbeef", r"\\x[0-9a-f]{8}"),
        ("inet", "192.168.0.17/24", r"\d+\.\d+\.0\.\d+/24"),
        ("bool", "t", "[tf]"),
        ("int4range", "[10,50)", r"\[\d\d,\d\d\)"),
        ("int4range", "empty", "empty"),
        ("xml", '<a b="secret">text &amp; more</a>', r'<a b="[a-z]{6}">[a-z]{4} &amp; [a-z]{4}</a>'),
        ("macaddr", "08:00:2b:01:02:03", r"([0-9a-f]{2}:){5}[0-9a-f]{2}"),
    ],
)  # fmt: skip
def test_the_shape_of_a_value_stays(name: str, text: str, shape: str) -> None:
    for _ in range(20):
        assert re.fullmatch(shape, StandIns().replace_text(text, kind_of(name)))


def test_equal_values_stay_equal_wherever_they_are_and_others_differ() -> None:
    one = StandIns()
    texts = [f"customer {number}" for number in range(500)]
    made = [one.replace_text(text, kind_of("text")) for text in texts]
    assert len(set(made)) == 500
    assert [one.replace_text(text, kind_of("varchar")) for text in texts] == made
    assert one.replace_text("77", kind_of("int4")) == one.replace_text("77", kind_of("int8"))
    document = json.loads(one.replace_text('{"who": "customer 3", "many": ["customer 4", 77]}', kind_of("jsonb")))
    assert document == {"who": made[3], "many": [made[4], int(one.replace_text("77", kind_of("int4")))]}
    assert one.replace_text("{77,5}", BY_OID[1007]).startswith("{" + one.replace_text("77", kind_of("int4")))


def test_an_address_of_six_has_no_zero_in_front_that_makes_it_equal_to_another_one() -> None:
    one = StandIns()
    made = [one.replace_text(f"2001:db8::{number:x}", kind_of("inet")) for number in range(1, 256)]
    assert [text for text in made if re.search(r"(^|:)0", text)] == []


def test_a_stand_in_that_reads_null_is_text_in_an_array(monkeypatch: pytest.MonkeyPatch) -> None:
    letters = iter("null")
    monkeypatch.setattr("psql_streamer.trial.stand_in_draws._draw_character", lambda *_: next(letters))
    assert StandIns().replace_text("{acme}", BY_OID[1009]) == '{"null"}'


@pytest.mark.parametrize(
    ("name", "form"), [("money", "${}.{:03}"), ("float8", "{}.{:03}e+20"), ("float4", "{}.{:03}e-10")]
)
def test_amounts_and_floats_with_exponents_use_all_digits(name: str, form: str) -> None:
    one = StandIns()
    made = {one.replace_text(form.format(number // 1000, number % 1000), kind_of(name)) for number in range(2000, 9000)}
    assert len(made) == 7000


def test_integers_for_which_there_are_too_few_of_their_length_stay_in_their_type() -> None:
    one = StandIns()
    made = [int(one.replace_text(str(number), kind_of("int2"))) for number in range(10_000, 2**15)]
    assert max(made) < 2**15
    assert len(set(made)) == len(made)


@pytest.mark.parametrize("name", ["int2", "text", "numeric"])
def test_keys_stay_unique_where_there_are_as_many_as_digits_allow(name: str) -> None:
    one = StandIns()
    made = [one.replace_text(str(number), kind_of(name)) for number in range(1, 1000)]
    assert len(set(made)) == (999 if name != "numeric" else len(set(made)))
    assert all(-(2**15) <= int(text) < 2**15 for text in made)


def test_each_of_many_dates_has_a_stand_in_of_its_own_that_is_found_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = count_draws(monkeypatch)
    first = date(1900, 1, 1)
    dates = [(first + timedelta(days=number)).isoformat() for number in range(26_000)]
    one = StandIns()
    assert len({one.replace_text(text, kind_of("date")) for text in dates}) == len(dates)
    assert len(drawn) < 10 * len(dates)


def test_values_of_a_shape_of_which_no_stand_in_is_left_are_not_searched_long(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = count_draws(monkeypatch)
    one = StandIns()
    for number in range(5000):
        one.replace_text(f"{number % 9 + 1}.{number:04}e+308", kind_of("float8"))
    assert len(drawn) < 10 * 5000


@pytest.mark.parametrize("name", ["date", "timestamp"])
def test_a_moment_before_christ_is_not_on_the_leap_day_of_another_year(name: str) -> None:
    stand_ins, kind = StandIns(), BY_OID[OIDS[name]]
    clock = "" if name == "date" else " 10:00:00"
    made = [
        stand_ins.replace_text(f"{year:04}-{month:02}-15{clock} BC", kind)
        for year in range(1, 1000)
        for month in range(1, 13)
    ]
    assert [text for text in made if "-02-29" in text] == []
    assert any("-02-28" in text for text in made)


def test_the_values_of_an_enum_are_exchanged_for_one_another() -> None:
    mood = PgType("mood", 16401, 16400, JsonForm.TEXT, labels=("sad", "ok", "happy"))
    one = StandIns()
    assert {one.replace_text(label, mood) for label in mood.labels} == set(mood.labels)


def test_another_capture_has_other_stand_ins() -> None:
    assert len({StandIns().replace_text("Ann Smith of Example Street", kind_of("text")) for _ in range(20)}) == 20


def test_the_members_of_a_document_keep_their_names_and_their_types() -> None:
    text = (
        r'{"name": "Ann \u00e9\n\"x\"", "n": -12.50, "big": 123456789012345678901234, "e": 1e5, "ok": true, "no": null}'
    )
    made = StandIns().replace_text(text, kind_of("jsonb"))
    found = json.loads(made, parse_float=Decimal)
    assert list(found) == ["name", "n", "big", "e", "ok", "no"]
    assert re.fullmatch('[A-Z][a-z]{2} é\n"[a-z]"', found["name"])
    assert found["n"].as_tuple().exponent == -2
    assert len(str(found["big"])) == 24
    assert isinstance(found["ok"], bool)
    assert found["no"] is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("jsonb", "9" * 5000),
        ("jsonb", '{"n": [-1' + "0" * 5000 + "]}"),
        ("json", "9" * 30 + "e1" + "0" * 5000),
        ("numeric", "9" * 5000),
        ("numrange", "[1," + "9" * 5000 + ")"),
        ("text", "9" * 5000),
    ],
)
def test_a_number_of_thousands_of_digits_keeps_its_length(name: str, text: str) -> None:
    made = StandIns().replace_text(text, kind_of(name))
    assert len(made) == len(text)
    assert made != text


def test_bounds_of_ranges_stay_in_their_order() -> None:
    for _ in range(50):
        low, high = StandIns().replace_text("[10,50)", kind_of("int4range"))[1:-1].split(",")
        assert int(low) <= int(high)


def test_values_of_arrows_types_and_bytes_are_scrubbed_too_and_uuids_of_rows() -> None:
    types = {"n": pa.int32(), "x": pa.float64(), "b": pa.bool_(), "s": pa.string(), "l": pa.list_(pa.int8())}
    columns = tuple(Column(name, ArrowType(kind)) for name, kind in types.items())
    relation = Relation("t", "main", "t", (*columns, Column("kept", ArrowType(pa.string()))))
    line = {
        "op": "read",
        "uuid": "123e4567-e89b-42d3-a456-426614174000",
        "after": {"n": "1234", "x": "1.5", "b": "true", "s": "secret", "l": {"arrow": "c2VjcmV0"}, "kept": "as it is"},
    }
    made = Scrubber(frozenset({"kept"})).scrub(line, relation)
    after = made["after"]
    assert re.fullmatch(r"[1-9]\d{3}", after["n"])
    assert re.fullmatch(r"[1-9]\.\d", after["x"])
    assert after["b"] in ("true", "false")
    assert re.fullmatch("[a-z]{6}", after["s"])
    assert after["s"] != "secret"
    assert after["l"] is None, "a nested value has no stand-in"
    assert after["kept"] == "as it is"
    assert made["uuid"] != line["uuid"], "it is made of the key"
