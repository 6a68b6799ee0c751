"""Looking up the tables of publications takes time in proportion to them: a start gives up after a minute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sources.postgres.catalog import Session
from sources.postgres.snapshot.tables import list_snapshot_tables
from tests.database import Database, fresh_database
from tests.snapshot_reading import reading

COUNT = 500

PAIR = """
CREATE TABLE alone_{0} (id int PRIMARY KEY);
CREATE TABLE part_{0} PARTITION OF root FOR VALUES FROM ({0}) TO ({0} + 1);
"""

MOST_ROWS_OF_A_TABLE = 400
"""Those of small catalogs, such as the operator classes, are read for each table."""


@pytest.fixture(scope="module")
def many(postgres: str) -> Iterator[Database]:
    with fresh_database(postgres, "many_tables_looked_up") as made:
        made.execute("CREATE TABLE root (id int PRIMARY KEY) PARTITION BY RANGE (id)")
        for first in range(0, COUNT, 100):  # all at once are more locks than the server has
            made.execute("".join(PAIR.format(number) for number in range(first, first + 100)))
        made.execute("ANALYZE pg_class, pg_index, pg_attribute")
        yield made


@pytest.mark.parametrize("publication", ["FOR ALL TABLES", "FOR TABLES IN SCHEMA public"])
def test_no_step_of_the_look_compares_each_table_with_all_others(many: Database, publication: str) -> None:
    many.execute(f"DROP PUBLICATION IF EXISTS p; CREATE PUBLICATION p {publication}")
    with reading(many) as reader:
        explained = _Explained(reader.session)
        found = list_snapshot_tables(explained, ["p"], lambda _: None)
    assert len(found) == 2 * COUNT
    assert [table.relation.table for table in found] == sorted(table.relation.table for table in found)
    # From 8 MB of pg_class on, the planner would take a sorted path that compares them all.
    assert not [key for key in explained.sort_keys if "c.relname" in key]
    most = max(explained.rows_of_steps)
    assert most < 2 * COUNT * MOST_ROWS_OF_A_TABLE, f"a step of the query went through {most:,} rows"


class _Explained(Session):
    """A session that notes how many rows each step of a query goes through, and by what steps sort."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.rows_of_steps: list[float] = []
        self.sort_keys: list[str] = []

    @property
    def server_version(self) -> int:
        return self._session.server_version

    def read_rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        plan = self._session.read_value(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {query}", *parameters)
        for step in _list_steps(plan[0]["Plan"]):
            self.rows_of_steps.append(_count_rows(step))
            self.sort_keys += step.get("Sort Key", ())
        return self._session.read_rows(query, *parameters)


def _list_steps(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield step
    for below in step.get("Plans", ()):
        yield from _list_steps(below)


def _count_rows(step: dict[str, Any]) -> float:
    removed = sum(count for name, count in step.items() if name.startswith("Rows Removed by"))
    return float((step["Actual Rows"] + removed) * step["Actual Loops"])
