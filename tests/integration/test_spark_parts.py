"""Rows that a rule makes several of: their numbers, what becomes of those that are gone, and their order."""

from __future__ import annotations

from typing import Any

import pytest

from psql_streamer.model import Changes, ReplicaIdentity, RowOp
from tests.spark_changes import DELETE, INSERT, UPDATE, Texts, batch, changes, column, only, values

LISTS = (column("id", 23, key=True), column("items", 25))
SPLIT = "SELECT id, item FROM changes LATERAL VIEW explode(split(items, ',')) AS item"


def lists(*ops: tuple[int, str | None, str | None], identity: ReplicaIdentity = ReplicaIdentity.FULL) -> Changes:
    """Changes with an id of its own each. (op, new items, old items)."""
    after: dict[int, Texts] = {}
    before: dict[int, Texts] = {}
    for row, (_, new, old) in enumerate(ops):
        for images, items in ((after, new), (before, old)):
            if items is not None:
                images[row] = [b"%d" % row, items.encode()]
    return changes([op for op, *_ in ops], after, before, LISTS, table="lists", identity=identity)


def parts(made: Changes) -> list[tuple[int, int, str, int, int, Any, Any]]:
    """(id, seq, op, part, of, new item, old item) of every row, in their order."""
    new = dict(zip(made.after.rows.tolist(), values(made, "item"), strict=True))
    old = dict(zip(made.before.rows.tolist(), values(made, "item", "before"), strict=True))
    numbers = [(0, 0)] * len(made) if made.part is None else made.part.tolist()
    return [
        (int(made.seq[row]), RowOp(made.op[row]).action, *numbers[row], new.get(row), old.get(row))
        for row in range(len(made))
    ]


def test_x(spark: Any) -> None:
    given = lists((INSERT, "a,b,c", None), (INSERT, "d", None), (UPDATE, "a,c", "a,b,c"), (DELETE, None, "x,y"))
    made = only(spark(lists={"sql": SPLIT}).handle(batch(given)))
    for p in parts(made):
        print(p)
    made = only(spark(lists={"sql": SPLIT.replace("SELECT", "SELECT concat(id, item) AS _key,")}).handle(batch(given)))
    for p in parts(made):
        print(p)
    print(made.after.addresses, made.columns)
