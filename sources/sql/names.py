"""Names of tables, as they are written in options: `orders`, `shop.orders`, `"my.schema".orders`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')


@dataclass(frozen=True, slots=True)
class TableName:
    """schema: empty for the default one of the connection."""

    schema: str
    table: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """ValueError for what is no name."""
        parts, at = [], 0
        while True:
            found = _PART.match(text, at)
            if found is None:
                raise ValueError(f'has no name of a table in "{text}": write table, or schema.table')
            parts.append(found[2] or found[1].replace('""', '"'))
            at = found.end()
            if at == len(text):
                break
            if text[at] != ".":
                raise ValueError(f'has no name of a table in "{text}": write table, or schema.table')
            at += 1
        return cls(".".join(parts[:-1]), parts[-1])

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}" if self.schema else self.table
