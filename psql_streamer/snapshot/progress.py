"""How far the snapshots of a source are: what of it is part of positions, and what is shown."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psql_streamer.snapshot.key_check import KeyCheck
from psql_streamer.snapshot.table_runs import TableRun, TableRuns, Untold
from psql_streamer.snapshots import SnapshotProgress, SnapshotState, TableRequest, TableState, Wanted

_MOST_ENDED_IN_STATUS = 5
"""Snapshots that have ended and are remembered."""

_RATE_SECONDS = 10.0


@dataclass(slots=True)
class SnapshotRun:
    """A snapshot that was begun, or will be.

    requested: what was asked for; empty for every table. tables: None until its tables have been looked up.
    seconds: that it has taken, without those in which it was not read for. check: of one that looks up keys.
    """

    id: str
    on_demand: bool
    asked_at: float
    requested: tuple[TableRequest, ...] = ()
    tables: TableRuns | None = None
    state: SnapshotState = SnapshotState.WAITING
    stale: int = 0
    read_again: int = 0
    seconds: float = 0.0
    reason: str = ""
    check: KeyCheck | None = None
    untold: Untold = field(default_factory=Untold)
    rates: Rate = field(default_factory=lambda: Rate())

    @property
    def has_keyless_left(self) -> bool:
        """Whether tables without a key are still to be read: they come before the stream."""
        return not self.state.ended and self.tables is not None and self.tables.has_keyless_left

    @property
    def ends_with_its_slot(self) -> bool:
        """Whether another one takes its place when its slot is made anew: it is the source's own, and has not ended."""
        return not self.on_demand and not self.state.ended

    def begin_anew(self) -> SnapshotRun:
        """The same before anything of it was done."""
        check = None if self.check is None else self.check.begin_anew()
        return SnapshotRun(self.id, self.on_demand, self.asked_at, self.requested, check=check)

    def want(self, wanted: Wanted) -> None:
        """What the operator wants of it, unless it has ended."""
        if self.state.ended:
            return
        match wanted:
            case Wanted.CANCEL:
                self.state = SnapshotState.CANCELLED
            case Wanted.PAUSE:
                self.state = SnapshotState.PAUSED
            case Wanted.RUN:
                if self.state is SnapshotState.PAUSED:
                    self.state = SnapshotState.WAITING

    def end_if_done(self) -> bool:
        """Whether it has ended with this, because no table is left."""
        if self.state.ended or self.tables is None or self.tables.has_left:
            return False
        failed = [table for table in self.tables if table.state is TableState.FAILED]
        self.state = SnapshotState.FAILED if failed else SnapshotState.DONE
        if failed and self.check is not None:
            self.reason = failed[0].reason
        elif failed:
            self.reason = (
                f"{len(failed)} of {len(self.tables)} tables were not read; {failed[0].table}: {failed[0].reason}"
            )
        else:
            self.reason = next(
                (f"{table.table}: {table.notes[-1]}" for table in self.tables if table.notes), self.reason
            )
        return True

    @property
    def reading(self) -> Sequence[TableRun]:
        """The tables of which rows are being read."""
        return () if self.tables is None else self.tables.reading

    def begin_table(self, table: TableRun) -> None:
        """Rows of it are read."""
        self._require_tables().begin(table)

    def end_table(self, table: TableRun) -> None:
        """All of it was given."""
        self._require_tables().end(table)

    def fail_table(self, table: TableRun, reason: str) -> None:
        """Nothing more of it is read."""
        self._require_tables().fail(table, reason)

    def _require_tables(self) -> TableRuns:
        assert self.tables is not None  # noqa: S101 - the table is one of them
        return self.tables

    def encode(self) -> dict[str, Any]:
        """For the position."""
        return {
            "id": self.id,
            "on_demand": self.on_demand,
            "asked_at": self.asked_at,
            "requested": [[one.table, one.where] for one in self.requested],
            "tables": None if self.tables is None else self.tables.encode(ended=self.state.ended),
            "state": str(self.state),
            "stale": self.stale,
            "read_again": self.read_again,
            "seconds": round(self.seconds, 1),
            "reason": self.reason,
            **({} if self.check is None else {"check": self.check.encode()}),
            **self._encode_untold(),
        }

    def _encode_untold(self) -> dict[str, Any]:
        untold = self.untold
        if self.state.ended and self.tables is not None and not untold.tables:
            untold = self.tables.count_untold()
        return {"untold": list(untold)} if untold.tables else {}

    @classmethod
    def decode(cls, data: Mapping[str, Any]) -> SnapshotRun:
        """What `encode` gave."""
        tables = data["tables"]
        return cls(
            data["id"],
            data["on_demand"],
            data["asked_at"],
            tuple(TableRequest(table, where) for table, where in data["requested"]),
            None if tables is None else TableRuns(TableRun.decode(table) for table in tables),
            SnapshotState(data["state"]),
            data["stale"],
            data["read_again"],
            data["seconds"],
            data["reason"],
            KeyCheck.decode(data["check"]) if "check" in data else None,
            Untold(*data.get("untold", ())),
        )

    def _describe_end(self) -> str:
        """The reason, and that not all tables are listed any more."""
        if not self.untold.tables:
            return self.reason
        told = 0 if self.tables is None else len(self.tables)
        listed = f"{told:,} of its {told + self.untold.tables:,} tables are still listed"
        return f"{self.reason}; {listed}" if self.reason else listed

    def show(self, now: float, state: SnapshotState, waits_for: str) -> SnapshotProgress:
        """For people. now: of the clock that Rate was told. state: what it counts as. waits_for: if for anything."""
        tables = self.tables or ()
        rate = self.rates.compute_per_second(now) if state is SnapshotState.RUNNING else 0.0
        left = [max(0, (table.estimated_rows or 0) - table.rows) for table in tables if table.is_left]
        known = all(table.estimated_rows is not None for table in tables if table.is_left)
        return SnapshotProgress(
            self.id,
            state,
            [table.show() for table in tables],
            self.on_demand,
            self.asked_at,
            self.untold.rows + sum(table.rows for table in tables),
            self.untold.chunks + sum(table.chunks for table in tables),
            self.stale,
            self.read_again,
            self.seconds,
            rate,
            sum(left) / rate if rate and known and self.check is None else None,
            waits_for or self._describe_end(),
            None if self.check is None else self.check.show(),
            self.untold.tables,
            self.untold.tables if self.state is SnapshotState.DONE else self.untold.done,
        )


class Rate:
    """Rows a second, of the last seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def note(self, now: float, rows: int) -> None:
        """So many rows were given."""
        self._samples.append((now, rows))
        self._drop_old(now)

    def compute_per_second(self, now: float) -> float:
        """Over the last seconds, or since the first rows if that is less."""
        self._drop_old(now)
        if not self._samples:
            return 0.0
        span = max(now - self._samples[0][0], 1.0)
        return sum(rows for _, rows in self._samples) / span

    def _drop_old(self, now: float) -> None:
        while self._samples and self._samples[0][0] < now - _RATE_SECONDS:
            self._samples.popleft()


def encode_runs(runs: Iterable[SnapshotRun], durably_ended: Container[str]) -> list[dict[str, Any]]:
    """For the position: those that are left, those whose end no stored position has, and the last of the others."""
    held = list(runs)
    ended = [run for run in held if run.state.ended and run.id in durably_ended]
    forgotten = {run.id for run in ended[: max(0, len(ended) - _MOST_ENDED_IN_STATUS)]}
    return [run.encode() for run in held if run.id not in forgotten]


def decode_runs(data: Sequence[Mapping[str, Any]]) -> list[SnapshotRun]:
    """What `encode_runs` gave."""
    return [SnapshotRun.decode(one) for one in data]
