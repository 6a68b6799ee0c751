"""A source of made-up snapshots: tables that are numbers of rows, chunks that are given when a file says so."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field

from psql_streamer.errors import SnapshotConflict, SourceRefused
from psql_streamer.interfaces import Finding, Source, Status
from psql_streamer.model import NO_TRANSACTIONS, Batch, Position, SourceInfo
from psql_streamer.options import SourceOptions
from psql_streamer.snapshots import (
    KeysProgress,
    PostedKeys,
    SnapshotProgress,
    SnapshotRequest,
    SnapshotState,
    TableProgress,
    TableState,
    Wanted,
)

CHUNK = 100
BROKEN = "public.broken"
"""A table that cannot be read."""


class MadeUpOptions(SourceOptions):
    """tables: rows by name. gate: a file that holds how many chunks may be given in all; without it, none is.

    initial: the id of a snapshot of all tables that the source begins by itself.
    """

    tables: dict[str, int] = Field(default={"public.a": 1000, "public.b": 300, BROKEN: 1})
    gate: Path | None = None
    initial: str = ""


class MadeUpSource(Source):
    """Each batch is a chunk, or nothing. Its position has what each snapshot has given."""

    Options = MadeUpOptions

    def __init__(self, name: str, options: MadeUpOptions) -> None:
        super().__init__(name, options)
        self.requests: list[SnapshotRequest] = []
        self.posted: list[PostedKeys] = []
        self._lock = threading.Lock()
        self._found: dict[str, SnapshotProgress] = {}
        self._chunks = 0

    def check(self) -> Iterable[Finding]:
        return ()

    def read_stream_identity(self) -> Mapping[str, str]:
        return {"kind": "made up"}

    def has_reached(self, position: Position, mark: Position) -> bool:
        return bool(position.data["chunks"] >= mark.data["chunks"])

    def review_snapshot(self, request: SnapshotRequest) -> None:
        for table in request.tables:
            if table.table not in self.options.tables and "*" not in table.table:
                raise SourceRefused(f"table {table.table} is not published", "add it to the publication")

    def take_keys(self, name: str, posted: PostedKeys) -> None:
        """All that follow on those before; all that are there count as looked up, and every second one as gone."""
        with self._lock:
            self.posted.append(posted)
            before = self._found[name]
            if before.keys is None:
                raise SnapshotConflict(f"snapshot {name} reads rows, and takes no keys", "ask for one of keys")
            skip = before.keys.next - posted.first
            count = before.keys.next + (max(0, len(posted.documents) - skip) if skip >= 0 else 0)
            keys = KeysProgress(count, count // 2, 0, count, posted.complete)
            state = SnapshotState.DONE if posted.complete else SnapshotState.RUNNING
            self._found[name] = replace(before, keys=keys, state=state)

    def set_snapshots(self, requests: Sequence[SnapshotRequest]) -> None:
        with self._lock:
            self.requests = list(requests)
            for request in requests:
                names = [one.table for one in request.tables if "*" not in one.table] or list(self.options.tables)
                if request.id not in self._found:
                    begun = _begun(request.id, names, request.asked_at, on_demand=True)
                    self._found[request.id] = replace(begun, keys=KeysProgress() if request.keys else None)

    def list_snapshots(self) -> Sequence[SnapshotProgress]:
        with self._lock:
            return list(self._found.values())

    def start(self, position: Position | None) -> None:
        with self._lock:
            stored: dict[str, Any] = dict(position.data["snapshots"]) if position else {}
            if position is None and self.options.initial:
                own = _begun(self.options.initial, list(self.options.tables), time.time(), on_demand=False)
                self._found = {own.id: own, **self._found}
            for name, given in stored.items():
                tables = list(given["tables"])
                before = self._found.get(name) or _begun(name, tables, given["asked_at"], on_demand=given["on_demand"])
                read = [TableProgress(table, TableState(state), rows, CHUNK, rows // CHUNK)
                        for table, (state, rows) in given["tables"].items()]  # fmt: skip
                self._found[name] = replace(
                    before, tables=read, state=SnapshotState(given["state"]), rows=sum(one.rows for one in read)
                )
            self._chunks = position.data["chunks"] if position else 0

    def read(self, timeout: float) -> Batch | None:
        with self._lock:
            before = dict(self._found)
            self._follow()
            gave = self._open and self._give_chunk()
            if gave or before != self._found:
                return self._batch()
        time.sleep(min(timeout, 0.02))
        return self._batch()

    def stop(self) -> None:
        pass

    def status(self) -> Status:
        failed = [one.id for one in self.list_snapshots() if one.state is SnapshotState.FAILED]
        return Status(not failed, f"snapshot {failed[0]} failed" if failed else "making up rows")

    @property
    def _open(self) -> bool:
        gate = self.options.gate
        return gate is None or (gate.exists() and self._chunks < int(gate.read_text() or 0))

    def _follow(self) -> None:
        """What is wanted of each, and whose turn it is."""
        wanted = {request.id: request.wanted for request in self.requests}
        free = True
        for one in list(self._found.values()):
            if one.state.ended:
                continue
            want = wanted.get(one.id, Wanted.RUN)
            state = SnapshotState.CANCELLED if want is Wanted.CANCEL else SnapshotState.PAUSED
            if want is Wanted.RUN:
                state = SnapshotState.RUNNING if free else SnapshotState.WAITING
                free = False
            self._found[one.id] = replace(one, state=state)

    def _give_chunk(self) -> bool:
        running = [one for one in self._found.values() if one.state is SnapshotState.RUNNING and one.keys is None]
        if not running:
            return False
        progress, self._chunks = running[0], self._chunks + 1
        tables = list(progress.tables)
        place = next(i for i, one in enumerate(tables) if one.state in (TableState.WAITING, TableState.READING))
        tables[place] = self._next(tables[place])
        over = all(one.state in (TableState.DONE, TableState.FAILED) for one in tables)
        failed = [one.table for one in tables if one.state is TableState.FAILED]
        ended = SnapshotState.FAILED if failed else SnapshotState.DONE
        self._found[progress.id] = replace(
            progress,
            state=ended if over else progress.state,
            tables=tables,
            rows=sum(one.rows for one in tables),
            chunks=sum(one.chunks for one in tables),
            stale=1,
            read_again=2,
            seconds=progress.seconds + 0.1,
            rows_per_second=CHUNK / 0.1,
            seconds_left=None if over else 1.0,
            reason=f"{failed[0]} was not read" if over and failed else "",
        )
        return True

    def _next(self, table: TableProgress) -> TableProgress:
        if table.table == BROKEN:
            return replace(
                table, state=TableState.FAILED, reason="permission denied: GRANT SELECT ON broken TO streamer"
            )
        total = self.options.tables[table.table]
        rows = min(total, table.rows + CHUNK)
        state = TableState.DONE if rows == total else TableState.READING
        return replace(
            table, state=state, rows=rows, estimated_rows=total, chunks=table.chunks + 1, last_key=(str(rows),)
        )

    def _batch(self) -> Batch:
        snapshots = {
            one.id: {
                "state": one.state.value,
                "asked_at": one.asked_at,
                "on_demand": one.on_demand,
                "tables": {table.table: [table.state.value, table.rows] for table in one.tables},
            }
            for one in self._found.values()
        }
        position = Position({"chunks": self._chunks, "snapshots": snapshots}, f"chunk {self._chunks}")
        return Batch(SourceInfo("made up", self.name, "localhost", "nowhere"), position, NO_TRANSACTIONS)


def _begun(name: str, tables: Sequence[str], asked_at: float, *, on_demand: bool) -> SnapshotProgress:
    return SnapshotProgress(
        name, SnapshotState.WAITING, [TableProgress(table, TableState.WAITING) for table in tables], on_demand, asked_at
    )
