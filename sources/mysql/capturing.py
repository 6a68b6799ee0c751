"""Rows of a server's tables that are there, read once: by a snapshot of which nothing stays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from psql_streamer.errors import SourceRefused
from psql_streamer.interfaces import CaptureRequest, Finding, Source
from psql_streamer.model import Batch, Position, Relation
from psql_streamer.snapshots import SnapshotState
from sources.mysql.options import MysqlOptions
from sources.snapshot.options import SnapshotMode


class ExistingRows(Source):
    """What a snapshot of some tables gives, without the changes that the stream brings meanwhile."""

    Options = MysqlOptions

    def __init__(
        self,
        name: str,
        options: MysqlOptions,
        request: CaptureRequest,
        published: Callable[[], Iterable[Relation] | None],
        open_source: Callable[[Mapping[str, Any]], Source],
    ) -> None:
        """published: the tables that are streamed; may connect. open_source: the source with these options changed."""
        super().__init__(name, options)
        self._snapshot = options.snapshot
        self._request = request
        self._published = published
        self._open_source = open_source
        self._source: Source | None = None

    def check(self) -> Iterable[Finding]:
        return ()

    def read_stream_identity(self) -> Mapping[str, str]:
        return {}

    def has_reached(self, position: Position, mark: Position) -> bool:
        return self._source is None or self._source.has_reached(position, mark)

    def start(self, position: Position | None) -> None:
        wanted = [one for one in self._published() or () if self._request.fits(one.schema, one.table)]
        chosen = {
            "mode": SnapshotMode.INITIAL,
            "tables": tuple(str(one) for one in wanted),
            "chunk_rows": min(self._snapshot.chunk_rows, self._request.rows),
        }
        self._source = self._open_source({"snapshot": self._snapshot.model_copy(update=chosen)})
        self._source.start(position)

    def read(self, timeout: float) -> Batch | None:
        if self._source is None:
            return None
        batch = self._source.read(timeout)
        if batch is None:
            self._require_success(self._source)
            return None
        if batch.transactions.snapshots:
            return batch
        self._source.confirm(batch.position)
        return None

    def confirm(self, position: Position) -> None:
        if self._source is not None:
            self._source.confirm(position)

    @property
    def is_exhausted(self) -> bool:
        runs = () if self._source is None else self._source.list_snapshots()
        return bool(runs) and all(one.state is SnapshotState.DONE for one in runs)

    def interrupt(self) -> None:
        if self._source is not None:
            self._source.interrupt()

    def stop(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.stop()

    @staticmethod
    def _require_success(source: Source) -> None:
        for run in source.list_snapshots():
            if run.state is SnapshotState.FAILED:
                raise SourceRefused("; ".join(table.reason for table in run.tables if table.reason) or run.reason)
