"""What MariaDB has in a table without saying so: columns that no SELECT sees, and times in an old form."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from psql_streamer.errors import ProtocolError
from tests.mariadb import Schema
from tests.mysql_source import read_all, seen, source_of, streaming


@pytest.mark.parametrize("image", ["FULL", "MINIMAL"])
@pytest.mark.behaviour("B2")
def test_the_column_that_keeps_a_long_text_unique_is_not_sent(schema: Schema, image: str) -> None:
    schema.execute("CREATE TABLE t (id INT PRIMARY KEY, a LONGTEXT, b TEXT, UNIQUE (a), UNIQUE (b))")
    with streaming(schema) as source:
        schema.execute(
            f"SET SESSION binlog_row_image = {image}",
            "INSERT INTO t VALUES (1, 'a', 'b'), (2, NULL, 'long'), (3, 'c', NULL)",
            "ALTER TABLE t ADD n INT NOT NULL DEFAULT 7",
            "UPDATE t SET a = CONCAT(a, '!'), b = '', n = 8 WHERE id = 1",
            "DELETE FROM t WHERE id = 2",
        )
        batches = read_all(source, schema)
        published = source.list_published()
    changes = seen(batches)
    assert [change.after for change in changes[:3]] == [
        {"id": "1", "a": "a", "b": "b"},
        {"id": "2", "a": None, "b": "long"},
        {"id": "3", "a": "c", "b": None},
    ]
    after = changes[3].after
    assert after is not None
    assert (list(after), after["a"], after["b"], after["n"]) == (["id", "a", "b", "n"], "a!", "", "8")
    assert published is not None
    assert published[0].columns == batches[-1].changes[-1].relation.columns


@pytest.fixture
def old_form(schema: Schema) -> Iterator[Schema]:
    """Tables are made as MariaDB made them before 10.1."""
    schema.execute("SET GLOBAL mysql56_temporal_format = OFF")
    try:
        yield schema
    finally:
        schema.execute("SET GLOBAL mysql56_temporal_format = ON")


@pytest.mark.behaviour("B1", "B3")
def test_times_with_a_fraction_in_the_old_form_are_refused_and_named_by_check(old_form: Schema) -> None:
    old_form.execute("CREATE TABLE t (id INT PRIMARY KEY, at DATETIME(6), plain DATETIME, clock TIME)")
    told = [finding.problem for finding in source_of(old_form).check()]
    assert [one for one in told if "before 10.1" in one] == [
        f"column 'at' of {old_form.name}.t is in MariaDB's form of before 10.1, which cannot be read with a fraction"
    ]
    with streaming(old_form) as source:
        old_form.execute("INSERT INTO t VALUES (1, '2026-01-02 03:04:05.678901', '2026-01-02 03:04:05', '-838:59:59')")
        with pytest.raises(ProtocolError, match="has a fraction"):
            seen(read_all(source, old_form))
