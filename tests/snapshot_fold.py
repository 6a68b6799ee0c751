"""Tables as a consumer of batches has them, which finds every READ row that contradicts the stream at its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from operator import itemgetter
from typing import Any

from psql_streamer.model import Batch, Changes, Image, Relation, RowOp
from tests.database import Database

Cell = bytes | None
Row = dict[str, Cell]
Key = tuple[Cell, ...]


class Fold:
    """Tables by name: key -> row. `deleted`: keys that the stream has deleted last, and not a READ brought back.

    Where tables have REPLICA IDENTITY FULL, the stream says of each row that it changes what it was before: a READ that
    was stale, or came too late, shows with the next change of its row, or with the comparison at the end.
    """

    def __init__(self) -> None:
        self.tables: dict[str, dict[Key, Row]] = {}
        self.touched: dict[str, dict[Key, Row | None]] = {}
        self.reads = 0

    def copy(self) -> Fold:
        return deepcopy(self)

    def add(self, batch: Batch) -> None:
        steps: list[tuple[int, Callable[[], None]]] = [
            (order, partial(self._apply, self.name_of(changes.relation), changes, *row))
            for changes in batch.changes
            for order, row in zip(changes.batch_order.tolist(), rows_of_changes(changes), strict=True)
        ]
        steps += [(one.batch_order, partial(self._truncate, self.name_of(one.relation))) for one in batch.truncates]
        for _, step in sorted(steps, key=itemgetter(0)):
            step()

    def name_of(self, relation: Relation) -> str:
        """What its rows are found by."""
        return str(relation)

    def shaped(self, row: Row, changes: Changes) -> Row:  # noqa: ARG002 - for those who look at shapes
        """What is kept of a row."""
        return row

    def _truncate(self, name: str) -> None:
        touched = self.touched.setdefault(name, {})
        touched |= dict.fromkeys([*self.tables.get(name, {}), *touched])
        self.tables[name] = {}

    def _apply(self, name: str, changes: Changes, op: RowOp, after: Row | None, before: Row | None) -> None:
        table, touched = self.tables.setdefault(name, {}), self.touched.setdefault(name, {})
        columns = [changes.columns[column].name for column in changes.relation.key_columns]
        if op is RowOp.READ:
            assert after is not None
            self.reads += 1
            key = tuple(after[column] for column in columns)
            if key in touched:
                known = touched[key]
                assert known is not None, f"READ of {name} {key}, which the stream deleted before"
                known = {column: value for column, value in known.items() if column in after}
                assert {**after, **known} == after, f"READ of {name} {key} is {after}, the stream said {known}"
            table[key] = after
            return
        if before is not None:
            key = tuple(before[column] for column in columns)
            if key in table and changes.relation.old_rows_are_whole:
                held = table[key]
                known = {column: value for column, value in before.items() if column in held}
                assert {**held, **known} == held, f"{name} {key} was {held} for consumers, and {before} in the stream"
            gone = {**(table.pop(key, None) or {}), **(before if changes.relation.old_rows_are_whole else {})}
            touched[key] = None
        else:
            gone = None
        if after is not None:
            key = tuple({**(before or {}), **after}[column] for column in columns)  # MINIMAL images have it once
            table[key] = self.shaped({**(gone or table.get(key) or {}), **after}, changes)
            touched[key] = {**(touched.get(key) or {}), **after}

    def assert_equals(self, database: Database, table: str) -> None:
        """Whether the consumer has what SELECT gives."""
        with database.session() as session, session.cursor() as cursor:
            cursor.execute(
                "SET bytea_output = hex; SET datestyle = ISO; SET intervalstyle = iso_8601; SET timezone = UTC"
            )
            cursor.execute(f"SELECT * FROM {table}")
            names = [column.name for column in cursor.description or ()]
            texts = ", ".join(f'"{name}"::text' for name in names)
            cursor.execute(f"SELECT {texts} FROM {table}")
            rows = [
                {name: None if value is None else value.encode() for name, value in zip(names, row, strict=True)}
                for row in cursor.fetchall()
            ]
        found = sorted(map(repr, self.tables.get(table, {}).values()))
        assert found == sorted(map(repr, rows))


def rows_of_changes(changes: Changes) -> Iterator[tuple[RowOp, Row | None, Row | None]]:
    """Each with its new row and its old one."""
    after, before = _image(changes, changes.after), _image(changes, changes.before)
    for row, op in enumerate(changes.op.tolist()):
        yield RowOp(op), after.get(row), before.get(row)


def _image(changes: Changes, image: Image) -> dict[int, Row]:
    names = [column.name for column in changes.columns]
    columns: list[list[Any]] = [column.to_pylist() for column in image.columns]
    found: dict[int, Row] = {}
    for at, row in enumerate(image.rows.tolist()):
        found[row] = {
            name: values[at]
            for number, (name, values) in enumerate(zip(names, columns, strict=True))
            if number not in image.absent or not image.absent[number][at]
        }
    return found
