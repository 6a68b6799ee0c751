"""What becomes of a TOASTed value that an update left alone, which PostgreSQL does not send again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from psql_streamer.model import Relation
from psql_streamer.table_patterns import TablePatterns, is_pattern, list_exact_names

Treatment: TypeAlias = Literal["fill", "omit", "marker"]
"""fill: the old row's value where PostgreSQL gives it (REPLICA IDENTITY FULL), else the column is left out.
omit: the column is left out, whatever the old row holds. marker: as fill, but a marker stands where there is no value.
"""

ANY_COLUMN = "*"
"""Stands for all columns that have no rule of their own."""

MARKER = "__unchanged__"


@dataclass(frozen=True, slots=True)
class Unchanged:
    """rules: schema.table.column, table.column, column or ANY_COLUMN -> its treatment. Tables may be patterns (see
    table_patterns), columns globs. What no rule names is filled. marker: the string that stands for a value.

    The rule that names a table exactly goes before one that has a pattern for it, that before one that names the column
    alone; ANY_COLUMN is last. ValueError, naming the rule, for one that cannot work.
    """

    rules: Mapping[str, Treatment] = field(default_factory=dict)
    marker: str = MARKER
    _of_tables: TablePatterns[Mapping[str, str]] = field(init=False, compare=False, repr=False)
    _of_columns: Mapping[str, str] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        of_tables: dict[str, dict[str, str]] = {}
        for rule in self.rules:
            if rule[:1] == rule[-1:] == "/":
                raise ValueError(f"{rule} names no column: write {rule}.* for all of them")
            table, _, column = rule.rpartition(".")
            if table and (is_pattern(table) or is_pattern(column)):
                of_tables.setdefault(table, {})[column] = rule
        alone = [rule for rule in self.rules if "." not in rule and rule != ANY_COLUMN]
        alone += [ANY_COLUMN] if ANY_COLUMN in self.rules else []
        object.__setattr__(self, "_of_tables", TablePatterns(of_tables))
        object.__setattr__(self, "_of_columns", {rule: rule for rule in alone})

    def find_treatment(self, relation: Relation, column: str) -> Treatment:
        """The treatment of a column of this name."""
        rule = self.find_rule(relation, column)
        return "fill" if rule is None else self.rules[rule]

    def find_rule(self, relation: Relation, column: str) -> str | None:
        """The rule that a column has."""
        return next(self.list_fitting_rules(relation, column), None)

    def list_fitting_rules(self, relation: Relation, column: str) -> Iterator[str]:
        """Every rule that fits a column; the first is the one that it has."""
        yield from (
            name for name in list_exact_names(relation.schema, f"{relation.table}.{column}") if name in self.rules
        )
        for fit in self._of_tables.list_fitting(relation.schema, relation.table):
            yield from _list_fitting(fit.value, column)
        yield from _list_fitting(self._of_columns, column)

    def with_markers(self) -> Unchanged:
        """The same with a marker wherever `fill` would leave the column out."""
        marked: dict[Treatment, Treatment] = {"fill": "marker", "omit": "omit", "marker": "marker"}
        rules: dict[str, Treatment] = {ANY_COLUMN: "marker"}
        rules |= {name: marked[rule] for name, rule in self.rules.items()}
        return Unchanged(rules, self.marker)


def _list_fitting(rules: Mapping[str, str], column: str) -> Iterator[str]:
    """The rules of one table that fit a column. rules: a column or a glob of columns -> the whole rule."""
    if column in rules:
        yield rules[column]
    yield from (rule for of, rule in rules.items() if of != column and is_pattern(of) and fnmatchcase(column, of))
