"""How far a source has got, and what it reads next: what its position holds. Pure.

Commit numbers must increase in the whole source and be the same when rows are sent again. Which rows are found together
depends on when one looks, so what was found is written down first: a plan says which keys of which tables are read, in
which order, with which commit numbers. Its rows are given when the plan is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from psql_streamer.model import Position
from sources.sql.basis import Basis
from sources.sql.settling import Key

POLL_PIECE_ROWS = 250_000
"""The most rows that a plan has of a table."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of a table behind its cursor, up to a key.

    shift: what is added to an integer key, or (ranked) to a row's place among the piece's, to make the commit number.
    last: the largest commit number that it may give away. done: how many of its rows were given.
    """

    table: str
    to: Key
    shift: int
    last: int
    ranked: bool
    done: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """cursors: of each table, the key of the last row that was given; None before the first one. bases: what these
    rest on. skipped: of tables that are read from `now` on, keys behind the cursor whose rows were there before.

    commit: the largest commit number that is given away. plans: how many were made. moment: when the last one was,
    microseconds since 1970-01-01 UTC. pieces: what is left of it.
    """

    cursors: Mapping[str, Key | None] = field(default_factory=dict)
    bases: Mapping[str, Basis] = field(default_factory=dict)
    commit: int = 0
    plans: int = 0
    moment: int = 0
    pieces: tuple[Piece, ...] = ()
    skipped: Mapping[str, tuple[Key, ...]] = field(default_factory=dict)

    @property
    def position(self) -> Position:
        """As it is stored."""
        data = {
            "commit": self.commit,
            "plans": self.plans,
            "moment": self.moment,
            "tables": {name: self._store_table(name) for name in self.cursors},
            "pieces": [{**asdict(piece), "to": list(piece.to)} for piece in self.pieces],
        }
        return Position(data, ", ".join(f"{name}={_show_key(key)}" for name, key in self.cursors.items()) or "nowhere")

    @classmethod
    def from_position(cls, position: Position) -> Self:
        """What a position holds."""
        data = position.data
        return cls(
            {name: None if of["last"] is None else tuple(of["last"]) for name, of in data["tables"].items()},
            {name: Basis.from_position(of) for name, of in data["tables"].items()},
            data["commit"],
            data["plans"],
            data["moment"],
            tuple(Piece(**{**piece, "to": tuple(piece["to"])}) for piece in data["pieces"]),
            {name: tuple(map(tuple, of["skipped"])) for name, of in data["tables"].items() if "skipped" in of},
        )

    def _store_table(self, name: str) -> dict[str, Any]:
        last = self.cursors[name]
        skipped = {"skipped": list(map(list, self.skipped[name]))} if name in self.skipped else {}
        return {**self.bases[name].stored, "last": None if last is None else list(last), **skipped}

    def with_plan(self, pieces: Sequence[Piece], moment: int) -> Self:
        """Behind a look at the tables that found something."""
        return replace(self, pieces=tuple(pieces), commit=pieces[-1].last, moment=moment, plans=self.plans + 1)

    def with_table(self, name: str, basis: Basis, cursor: Key | None, skipped: tuple[Key, ...] = ()) -> Self:
        """With a table that it did not know before."""
        of_table = {name: skipped} if skipped else {}
        return replace(
            self,
            cursors={**self.cursors, name: cursor},
            bases={**self.bases, name: basis},
            skipped={**self.skipped, **of_table},
        )

    def with_keys_of(self, name: str, basis: Basis, known: Callable[[Key], Key]) -> Self:
        """With the keys of a table as they are known now."""
        cursor = self.cursors[name]
        pieces = tuple(replace(one, to=known(one.to)) if one.table == name else one for one in self.pieces)
        cursors, bases = {**self.cursors, name: cursor and known(cursor)}, {**self.bases, name: basis}
        return replace(self, cursors=cursors, bases=bases, pieces=pieces)

    def with_rows_done(self, rows: int, last: Key) -> Self:
        """Behind so many rows of the first piece."""
        piece = replace(self.pieces[0], done=self.pieces[0].done + rows)
        return replace(self, cursors={**self.cursors, piece.table: last}, pieces=(piece, *self.pieces[1:]))

    def with_piece_done(self) -> Self:
        """Behind all rows of the first piece."""
        piece = self.pieces[0]
        skipped = {name: keys for name, keys in self.skipped.items() if name != piece.table}
        cursors = {**self.cursors, piece.table: piece.to}
        return replace(self, cursors=cursors, pieces=self.pieces[1:], skipped=skipped)

    def with_piece_put_off(self) -> Self:
        """Without what is left of the first piece: its rows get other numbers in a later plan, which is stored before
        any of them is given.
        """
        return replace(self, pieces=self.pieces[1:])

    def without_pieces_of(self, tables: Collection[str]) -> Self:
        """Without what is left of some tables, which nobody can read any more."""
        return replace(self, pieces=tuple(one for one in self.pieces if one.table not in tables))

    def has_reached(self, mark: Self) -> bool:
        """Whether everything up to `mark` lies before this."""
        return self._order() >= mark._order()

    def _order(self) -> tuple[int, int, int]:
        return self.plans, -len(self.pieces), self.pieces[0].done if self.pieces else 0


def _show_key(key: Key | None) -> str:
    return "(beginning)" if key is None else ",".join(map(str, key))
