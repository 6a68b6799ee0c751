"""The option `snapshot` of a postgres source: a mode alone, or a section."""

from __future__ import annotations

from pathlib import Path

import pytest

from psql_streamer.config import load
from psql_streamer.snapshots import TableRequest
from sources.postgres.options import PostgresOptions
from sources.postgres.snapshot.conditions import require_condition
from sources.postgres.snapshot.options import SnapshotMode, SnapshotOptions
from sources.snapshot.conditions import make_table_matcher
from tests.config_files import MINIMAL, problems_of, with_line, written

GO = MINIMAL.replace("lmdb =", "boltdb =")


def snapshot_of(folder: Path, text: str, **environ: str) -> SnapshotOptions:
    options = load(written(folder, text), environ).sources["db1"].options
    assert isinstance(options, PostgresOptions)
    return options.snapshot


def test_existing_rows_are_read_at_the_first_start_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    assert snapshot_of(tmp_path, MINIMAL) == SnapshotOptions()
    assert SnapshotOptions().mode is SnapshotMode.INITIAL


@pytest.mark.parametrize("mode", list(SnapshotMode))
def test_a_mode_alone_stands_for_the_section(tmp_path: Path, mode: SnapshotMode) -> None:
    line = f'snapshot = "{mode.value}"'
    assert snapshot_of(tmp_path, with_line(MINIMAL, "[source.db1]", line)) == SnapshotOptions(mode=mode)


def test_a_variable_gives_the_mode_too(tmp_path: Path) -> None:
    variable = {"PSQL_STREAMER__SOURCE__DB1__SNAPSHOT": "never"}
    assert snapshot_of(tmp_path, MINIMAL, **variable).mode is SnapshotMode.NEVER


def test_the_section_says_which_tables_and_rows_are_read(tmp_path: Path) -> None:
    section = """[source.db1.snapshot]
    tables = ["public.orders", "sales_*"]
    where = { "public.orders" = "id > 5", "sales_*" = "true" }
    chunkRows = 7
    chunkBytes = "1MB"
    chunkTime = "200ms"
    parallel = 1"""
    found = snapshot_of(tmp_path, with_line(MINIMAL, "[sink.kafka1]", "", before=section))
    limits = (found.chunk_rows, found.chunk_bytes, found.chunk_time, found.parallel)
    assert (found.mode, limits) == (SnapshotMode.INITIAL, (7, 1 << 20, 0.2, 1))
    tables = [("public", "orders"), ("old", "orders"), ("old", "sales_2020")]
    assert [found.wants(*table) for table in tables] == [True, False, True]
    assert [found.find_condition(*table) for table in tables] == ["id > 5", "", "true"]


def test_a_file_of_the_go_service_means_no_snapshot(tmp_path: Path) -> None:
    assert snapshot_of(tmp_path, GO).mode is SnapshotMode.NEVER
    asked = with_line(GO, "[source.db1]", 'snapshot = "initial"')
    assert snapshot_of(tmp_path, asked).mode is SnapshotMode.INITIAL
    section = with_line(GO, "[sink.kafka1]", "", before="[source.db1.snapshot]\nparallel = 1")
    assert snapshot_of(tmp_path, section) == SnapshotOptions(parallel=1)
    variable = {"PSQL_STREAMER__SOURCE__DB1__SNAPSHOT": "always"}
    assert snapshot_of(tmp_path, GO, **variable).mode is SnapshotMode.ALWAYS


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('snapshot = "sometimes"', '"sometimes" is not allowed: must be one of "initial", "never" or "always"'),
        ("snapshot = true", 'true is not allowed: must be one of "initial", "never" or "always"'),
        ('snapshot = { mod = "never" }', "unknown key mod; did you mean mode?"),
        ("snapshot = { chunkRows = 0 }", "0 is not allowed: must be greater than 0"),
        ('snapshot = { chunkTime = "-1s" }', '"-1s" is not allowed: must be greater than 0'),
        ('snapshot = { chunkTime = "9ms" }', "is shorter than 10ms: a query takes a few milliseconds by itself"),
        ('snapshot = { tables = ["/(/"] }', "/(/ is not a regular expression"),
        ('snapshot = { where = { t = "id > 5)" } }', "the condition of t closes a parenthesis that it does not open"),
        ('snapshot = { where = { t = "id; DROP TABLE t" } }', "the condition of t has a semicolon"),
    ],
)
def test_what_is_no_snapshot_is_said_with_its_place(tmp_path: Path, line: str, problem: str) -> None:
    [found] = problems_of(tmp_path, with_line(MINIMAL, "[source.db1]", line))
    assert "source.db1.snapshot" in found
    assert problem in found


@pytest.mark.parametrize(
    "condition",
    [
        "id > 5 -- x",
        "id > 5 /* (; /* ' */ */",
        "name = ');--'",
        r"name = E'\');'",
        "name = 'it''s ('",
        'n > "odd ) column"',
        "body = $$ ); $$ AND (a OR b)",
        "body = $q$ ); $$ $q$",
        "data ? '(' AND a$b = 1",
        "price < 1e5 AND ż = 'ż'",
    ],
)
def test_conditions_that_stay_within_their_parentheses_are_taken(condition: str) -> None:
    require_condition(condition)


@pytest.mark.parametrize(
    "condition",
    [
        "true) OR (true",
        "true; SELECT 1",
        "(true",
        "name = 'open",
        r"name = '\'; DROP TABLE t --'",
        '"open',
        "id > 5 /* open",
        "id > 5 /* /* */",
        "body = $q$ ); $$",
        "  ",
        "a$b$ = 1) --$b$",
        "→$b$ = 1) --$b$",
        "id > 5 -- x\r) OR (true",
        "name = E'a'\n'\\'' ) OR ('' = '",
        "id > 1$$ ' $$) OR ('",
        "id > 5\0",
    ],
)
@pytest.mark.behaviour("N17")
def test_conditions_that_reach_out_of_their_parentheses_are_refused(condition: str) -> None:
    with pytest.raises(ValueError, match=r"has a|closes|is empty"):
        require_condition(condition)


@pytest.mark.parametrize(
    ("tables", "where", "found"),
    [
        (["orders"], {"public.orders": "a"}, ["a", None]),
        (["public.orders"], {"orders": "a"}, ["a", None]),
        (["public.orders"], {"*": "a"}, ["a", None]),
        (["*.*"], {"/^public/": "a", "public.orders": "b"}, ["b", "a"]),
        (["o*"], {"public.items": "a"}, ["", None]),
        ([], {"items": "a"}, ["", "a"]),
    ],
)
def test_which_tables_are_read_and_under_which_condition_are_two_questions(
    tables: list[str], where: dict[str, str], found: list[str | None]
) -> None:
    match = make_table_matcher([TableRequest(table) for table in tables], where)
    assert [match("public", "orders"), match("public", "items")] == found


def test_a_condition_that_a_request_names_comes_before_that_of_the_file() -> None:
    match = make_table_matcher([TableRequest("orders", "asked")], {"public.orders": "of the file"})
    assert match("public", "orders") == "asked"
