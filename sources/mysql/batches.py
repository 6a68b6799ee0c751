"""Events of one session become batches, each with the position that is reached with it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from psql_streamer.binlog.decoded import Decoded
from psql_streamer.binlog.decoder import Decoder
from psql_streamer.binlog.statements import Statement
from psql_streamer.model import (
    MARIADB,
    NO_TRANSACTIONS,
    Batch,
    Relation,
    SchemaChange,
    SourceInfo,
    measure_batch_overhead,
)
from sources.mysql.gtid_sets import Executed
from sources.mysql.options import Wanted
from sources.mysql.places import LogPlace, Place
from sources.mysql.positions import BinlogPosition

log = logging.getLogger(__name__)

_FIRST_ROW_BYTES = 64.0
"""What a row is taken to have before the first batch has said."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The server that a session reads from. name: of the source. uuid: empty for MariaDB. log_name: as SourceInfo's.
    folds_names: as Decoder has it.
    """

    kind: str
    name: str
    host: str
    uuid: str
    server_id: int
    log_name: str
    folds_names: bool = False
    _described: dict[str, SourceInfo] = field(default_factory=dict, compare=False)

    def describe(self, identity: str) -> SourceInfo:
        """What events say of their source. identity: what numbers of transactions count in: a server's uuid, MariaDB's
        domain, or nothing.
        """
        found = self._described.get(identity)
        if found is None:
            found = self._described[identity] = SourceInfo(
                *(self.kind, self.name, self.host, ""),
                identity=identity or self.uuid,
                server_id=self.server_id if identity in ("", self.uuid) else 0,
                log_name=self.log_name,
            )
        return found


class AlteredTables:
    """Tables that statements may have made others of, by Relation.id, since somebody looked and emptied it."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._all = False

    def __bool__(self) -> bool:
        return self._all or bool(self._ids)

    def __contains__(self, relation: object) -> bool:
        return self._all or relation in self._ids

    def note(self, statement: Statement) -> None:
        """The stream gives it."""
        self._all = self._all or statement.drops_schema
        self._ids |= {f"{schema}.{name}" for schema, name in statement.tables}

    def clear(self) -> None:
        """They are known."""
        self._ids, self._all = set(), False


class BatchReader:
    """resume: where the session starts. executed: the same as a set, which is its own from here on; None without GTIDs.

    before: what lies before resume where that is a place and the server gives GTIDs, which positions then are from the
    first end of a transaction on; its own, too; else None.

    shapes: of the tables there. transaction_metadata: whether batches say where transactions begin and end. xa_at: when
    the last XA transaction was committed, as received_at; None before any. source, commit: of the last transaction.
    """

    def __init__(
        self,
        origin: Origin,
        resume: BinlogPosition,
        executed: Executed | None,
        before: Executed | None,
        wanted: Wanted,
        shapes: Mapping[str, Relation],
        transaction_metadata: bool,
    ) -> None:
        self.at = replace(resume, tables=wanted.choice)
        self.row_bytes = _FIRST_ROW_BYTES
        self.altered = AlteredTables()
        self.xa_at: float | None = None
        identity, self.commit = ("", 0) if executed is None else executed.find_last(origin.uuid)
        self.source = origin.describe(identity)
        self._origin = origin
        self._executed = executed
        self._before = before
        self._executed_text = resume.executed
        self._wanted = wanted
        self._replayed = 0
        self._tables_changed = False
        self._decoder = Decoder(
            origin.describe,
            "mariadb" if origin.kind == MARIADB else "mysql",
            wanted,
            # With GTIDs the server begins with a ROTATE event that names the file.
            "" if executed is not None else resume.place.file,
            resume.place.offset,
            resume.open,
            shapes,
            transaction_metadata=transaction_metadata,
            folds_names=origin.folds_names,
        )

    def read(self, events: Iterable[bytes], received_at: float) -> Iterator[Batch]:
        """What events hold. received_at: as Batch has it."""
        for decoded in self._decoder.decode(events):
            if self._decoder.replayed > self._replayed:
                self._replayed, self.xa_at = self._decoder.replayed, received_at
            if (batch := self._make_batch(decoded, received_at)) is not None:
                yield batch

    @property
    def reached(self) -> LogPlace:
        """Where the last event ended, whatever it was."""
        return LogPlace.from_place(Place(*self._decoder.reached))

    @property
    def prepared(self) -> int:
        """XA transactions that are prepared, whose outcome has not come."""
        return self._decoder.prepared

    @property
    def in_transaction(self) -> bool:
        """Whether the last event was inside of a transaction."""
        return self._decoder.in_transaction

    @property
    def source_of_selects(self) -> SourceInfo:
        """Where rows come from that were selected here, whichever server wrote them."""
        return replace(self.source, server_id=self._origin.server_id)

    def take_news_of_tables(self) -> bool:
        """Whether a statement about a table that is streamed has come since this was asked."""
        changed, self._tables_changed = self._tables_changed, False
        return changed

    def learn(self, shape: Relation) -> tuple[Relation, SchemaChange | None]:
        """See Decoder.learn."""
        return self._decoder.learn(shape)

    def stand_still(self) -> Batch:
        """A batch that is the position alone."""
        return Batch(self._origin.describe(""), self.at.position, NO_TRANSACTIONS)

    def _make_batch(self, decoded: Decoded, received_at: float) -> Batch | None:
        """None where nothing has moved."""
        self._note_ddl(decoded.ddl)
        for torn in decoded.torn:
            log.warning(
                "source %s: the server crashed while it wrote transaction %s: the binary log lacks its end, and "
                "nothing of it is sent; compare the tables, which may have it",
                *(self._origin.name, torn or "(no GTID)"),
            )
        if len(decoded.transactions):
            self.source, self.commit = decoded.source, int(decoded.transactions.commit[-1])
        changes, truncates, metadata = decoded.changes, decoded.truncates, decoded.transaction_metadata
        before, self.at = self.at, self._advance_position(decoded)
        told = changes.rows or truncates or decoded.schema_changes or decoded.statements or metadata
        if not told and self.at == before:
            return None
        if changes.rows:
            self.row_bytes = decoded.nbytes / changes.rows
        return Batch(
            decoded.source,
            self.at.position,
            decoded.transactions,
            changes,
            truncates,
            schema_changes=decoded.schema_changes,
            statements=decoded.statements,
            transaction_metadata=metadata,
            nbytes=measure_batch_overhead(changes) + 2 * decoded.nbytes,
            received_at=received_at,
        )

    def _advance_position(self, decoded: Decoded) -> BinlogPosition:
        if decoded.completed and self._executed is None:
            self._executed = self._before
        if self._executed is not None and decoded.completed:
            for gtid in decoded.completed:
                self._executed.add(*gtid)
            self._executed_text = str(self._executed)
        return self.at.advance_to(decoded.standing, self._executed_text)

    def _note_ddl(self, statements: Sequence[Statement]) -> None:
        for statement in statements:
            of_wanted = any(self._wanted(*table) for table in statement.tables)
            if not statement.tables or of_wanted:
                log.info("source %s: %s", self._origin.name, statement.shown)
            self._tables_changed = self._tables_changed or of_wanted
            self.altered.note(statement)
