"""What becomes of a TOASTed value that an update left alone, which PostgreSQL does not send again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from psql_streamer.model import Relation

Treatment: TypeAlias = Literal["fill", "omit", "marker"]
"""fill: the old row's value where PostgreSQL gives it (REPLICA IDENTITY FULL), else the column is left out.
omit: the column is left out, whatever the old row holds. marker: as fill, but a marker stands where there is no value.
"""

ANY_COLUMN = "*"
"""In place of a column's name: all that have no rule of their own."""

MARKER = "__unchanged__"


@dataclass(frozen=True, slots=True)
class Unchanged:
    """rules: schema.table.column, table.column, column or ANY_COLUMN -> its treatment, the most specific wins; what no
    rule names is filled. marker: the string that stands for a value.
    """

    rules: Mapping[str, Treatment] = field(default_factory=dict)
    marker: str = MARKER

    def of(self, relation: Relation, column: str) -> Treatment:
        """The treatment of a column of this name."""
        for name in (f"{relation}.{column}", f"{relation.table}.{column}", column, ANY_COLUMN):
            if name in self.rules:
                return self.rules[name]
        return "fill"

    def marked(self) -> Unchanged:
        """The same with a marker wherever `fill` would leave the column out."""
        marked: dict[Treatment, Treatment] = {"fill": "marker", "omit": "omit", "marker": "marker"}
        rules: dict[str, Treatment] = {ANY_COLUMN: "marker"}
        rules |= {name: marked[rule] for name, rule in self.rules.items()}
        return Unchanged(rules, self.marker)
