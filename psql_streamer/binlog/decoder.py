"""Events in, changes out: transactions, tables, and where a restart may resume.

Commit numbers
--------------
A change's identity is (source, commit number, seq). With GTIDs the commit number is the GTID's number, and the source
is the server's uuid (and tag) or MariaDB's domain, so that a change has the same identity on every server of a
replication. Without GTIDs it is the number of the binlog file in the upper 32 bits and the place in it where the
transaction begins in the lower ones: like the end it increases from commit to commit, and it is known when the first
row comes, so that a transaction need not be held until its end.

Resuming inside a transaction
-----------------------------
A server sends whole transactions. `Standing.open` says how many changes of the one that comes next are delivered; when
it comes again, as many of its changes are left out. Until then the standing stays what it was: it must never go back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from psql_streamer.binlog import events
from psql_streamer.binlog.block import BlockBuilder
from psql_streamer.binlog.decoded import Decoded, OpenTransaction, Standing
from psql_streamer.binlog.events import CHECKSUM_BYTES, HEADER_BYTES, EventType, Gtid, GtidEvent, Header
from psql_streamer.binlog.payload import read_payload
from psql_streamer.binlog.reader import Reader
from psql_streamer.binlog.shapes import Table, TableShapes, Wanted
from psql_streamer.binlog.statements import Statement, StatementKind, read_statement
from psql_streamer.binlog.xa import HeldTransaction, PreparedTransactions
from psql_streamer.errors import ProtocolError, SourceRefused
from psql_streamer.model import Relation, RowOp, SourceInfo

Flavor = Literal["mysql", "mariadb"]


@dataclass(slots=True)
class _Transaction:
    """The one that is open. grouped: whether it has more than one statement, up to XID or COMMIT."""

    gtid: Gtid | None
    commit: int
    moment: int
    grouped: bool = False


class Decoder:
    """Decodes the events of one replication session, in order.

    source: what events say of their source, by its identity (the server's uuid, MariaDB's domain, empty without GTIDs).
    wanted: whether the changes of a table are to be decoded, by schema and table.
    file, position: where the session was started, until a ROTATE event says it.
    resume: what of the next transaction is delivered; its changes are left out when it comes again.
    remembered: the shapes that tables had there, by Relation.id; what differs is a schema change.
    tinyint1_is_bool: whether TINYINT(1) is a boolean.
    transaction_metadata: whether to say where transactions begin and end, and to count their changes by table.
    most_bytes: of rows in one piece. most_prepared: bytes of XA transactions that are prepared and not committed.
    """

    def __init__(
        self,
        source: Callable[[str], SourceInfo],
        flavor: Flavor,
        wanted: Wanted,
        file: str = "",
        position: int = 4,
        resume: OpenTransaction | None = None,
        remembered: Mapping[str, Relation] | None = None,
        tinyint1_is_bool: bool = False,
        transaction_metadata: bool = False,
        most_bytes: int = 8 << 20,
        most_prepared: int = 64 << 20,
    ) -> None:
        self._source = source
        self._flavor = flavor
        self._file = file
        self._at = position  # where the event ends that is read
        self._safe = file, position  # behind the last transaction that is wholly behind
        self._resume = resume
        self._shapes = TableShapes(wanted, flavor == "mariadb", tinyint1_is_bool, remembered or {})
        self._open: _Transaction | None = None
        self._changes = 0  # of the open transaction, in pieces that were given
        self._tables: dict[int, Table] = {}
        self._checksums: bool | None = None  # None: no FORMAT_DESCRIPTION event has said
        self._identity = ""
        self._block = BlockBuilder(self._shapes, transaction_metadata)
        self._most_bytes = most_bytes
        self._completed: list[Gtid] = []
        self._done: list[Gtid] = []  # behind an XA transaction that is prepared
        self._prepared = PreparedTransactions(most_prepared)
        self._held: HeldTransaction | None = None  # the open transaction, if it is an XA transaction

    @property
    def in_transaction(self) -> bool:
        """Whether the events so far end inside a transaction."""
        return self._open is not None

    def decode(self, binlog: Sequence[bytes]) -> Iterator[Decoded]:
        """Whole events in their order, each without the OK byte in front of it.

        Gives what they hold: one piece, or more where the source changes, or where they hold more than `most_bytes`.
        ProtocolError when bytes are not the binlog's. SourceRefused when something in it cannot be read.
        """
        for header, body in self._unpack(binlog):
            if self._block.nbytes >= self._most_bytes or (header.type in _BEGINS and self._other_source(header, body)):
                yield self._finish()
            self._read(header, body)
        yield self._finish()

    def _unpack(self, binlog: Sequence[bytes]) -> Iterator[tuple[Header, bytes]]:
        """The events that are to be read, those of compressed transactions included."""
        for event in binlog:
            header = events.read_header(event)
            body = self._body(event, header)
            if header.log_pos and not header.flags & events.ARTIFICIAL:
                self._at = header.log_pos
            if header.type != EventType.TRANSACTION_PAYLOAD:
                yield header, body
                continue
            for inner in read_payload(body):
                # Such an event lies where the one lies that it came in.
                yield events.read_header(inner)._replace(size=header.size), inner[HEADER_BYTES:]

    def _body(self, event: bytes, header: Header) -> bytes:
        """What lies between header and checksum."""
        checksums = self._checksums
        if header.type == EventType.FORMAT_DESCRIPTION:
            return event[HEADER_BYTES:]
        if checksums is None:
            checksums = events.has_checksum(event)  # what comes before the first FORMAT_DESCRIPTION event
        elif checksums:
            events.verify_checksum(event, header)
        return event[HEADER_BYTES:-CHECKSUM_BYTES] if checksums else event[HEADER_BYTES:]

    def _read(self, header: Header, body: bytes) -> None:
        if self._held is not None and header.type in _HELD:
            self._prepared.hold(self._held, header, body)
            return
        read = _READ.get(header.type)
        if read is not None:
            read(self, header, body)
        elif header.type not in _SKIPPED and not header.flags & events.IGNORABLE:
            raise SourceRefused(
                f"a {events.name_of(header.type)} event, which this version cannot read, ends at {self._where()}"
            )

    def _where(self) -> str:
        return f"{self._file}:{self._at}"

    # Files.

    def _read_format(self, _: Header, body: bytes) -> None:
        found = events.read_format_description(b"\0" * HEADER_BYTES + body)
        self._checksums = found.checksums
        self._tables.clear()

    def _read_rotate(self, header: Header, body: bytes) -> None:
        file, position = events.read_rotate(body)
        if file == self._file and header.flags & events.ARTIFICIAL:
            return
        self._file, self._at = file, position
        self._tables.clear()
        self._mark_safe()

    def _read_heartbeat(self, *_: object) -> None:
        self._mark_safe()

    def _mark_safe(self) -> None:
        if self._open is None and not len(self._prepared):
            self._safe = self._file, self._at

    def _read_incident(self, *_: object) -> None:
        raise SourceRefused(
            f"the server lost events of its binlog before {self._where()} (INCIDENT)",
            "its log says why; take a snapshot of the tables, and start behind that place",
        )

    # Transactions.

    def _other_source(self, header: Header, body: bytes) -> bool:
        gtid = self._gtid_event(header, body).gtid
        return _identity(gtid, self._flavor) != self._identity and not self._block.empty

    def _gtid_event(self, header: Header, body: bytes) -> GtidEvent:
        if header.type == EventType.MARIADB_GTID:
            return events.read_mariadb_gtid(body, header.server_id)
        if header.type == EventType.GTID_TAGGED:
            return events.read_tagged_gtid(body)
        return events.read_gtid(body, header.type == EventType.ANONYMOUS_GTID)

    def _read_gtid(self, header: Header, body: bytes) -> None:
        found = self._gtid_event(header, body)
        self._begin(header, found.gtid, found.moment)
        if self._open is not None and header.type == EventType.MARIADB_GTID:
            self._open.grouped = not found.standalone
            if found.prepares:
                self._held = HeldTransaction(found.gtid)

    def _begin(self, header: Header, gtid: Gtid | None, moment: int = 0) -> None:
        if self._open is not None:
            raise ProtocolError(f"a transaction begins within another one before {self._where()}")
        self._identity = _identity(gtid, self._flavor)
        commit = gtid.number if gtid else _file_number(self._file) << 32 | (self._at - header.size) & 0xFFFF_FFFF
        self._open = _Transaction(gtid, commit, moment or header.timestamp * 1_000_000)
        self._changes = 0
        shown = str(gtid) if gtid else f"{self._file}:{self._at - header.size}"
        durable = self._resume.changes if self._resume and self._is_resumed(self._open) else 0
        self._block.begin(commit, self._open.moment, shown, durable)

    def _end(self) -> None:
        held = self._open
        if held is None:
            return
        if held.gtid is not None:
            self._done.append(held.gtid)
        if self._is_resumed(held):
            self._resume = None
        self._open = None
        self._block.end()
        self._release()
        self._mark_safe()

    def _release(self) -> None:
        """MariaDB's position says how far each domain has got: nothing behind an XA PREPARE counts before that one."""
        if self._flavor == "mysql" or not len(self._prepared):
            self._completed += self._done
            self._done.clear()

    def _is_resumed(self, held: _Transaction) -> bool:
        return self._resume is not None and (held.gtid, held.commit) == (self._resume.gtid, self._resume.commit)

    def _read_xid(self, *_: object) -> None:
        self._end()

    def _read_query(self, header: Header, body: bytes) -> None:
        query = events.read_query(body, header.type == EventType.QUERY_COMPRESSED)
        statement = read_statement(query.statement, query.schema)
        kind = statement.kind
        if kind is StatementKind.ROWS:
            self._refuse_statement(statement, query.schema)
        if self._open is None:
            if kind is StatementKind.COMMIT:
                return
            self._begin(header, None)
        assert self._open is not None  # noqa: S101 - it was begun
        if kind in (StatementKind.BEGIN, StatementKind.XA_START):
            self._open.grouped = True
            self._held = HeldTransaction(self._open.gtid) if kind is StatementKind.XA_START else None
            return
        if kind in (StatementKind.XA_COMMIT, StatementKind.XA_ROLLBACK):
            self._read_outcome(header, statement)
        if kind in _ENDS:
            self._end()
            return
        if kind is StatementKind.TRUNCATE and self._shapes.wants(statement.schema, statement.table):
            self._block.add_truncate(self._shapes.current(statement.schema, statement.table), self._place(header))
        if kind is StatementKind.DDL:
            self._block.add_ddl(statement)
        if not self._open.grouped:
            self._end()

    def _read_xa_prepare(self, header: Header, body: bytes) -> None:
        found, held, opened = events.read_xa_prepare(body), self._held, self._open
        self._held = None
        if held is None or opened is None:
            raise ProtocolError(f"an XA_PREPARE event before {self._where()} is outside of any XA transaction")
        if found.one_phase:
            self._prepared.release(held)
            self._replay(header, held)
            self._end()
        else:
            self._prepared.prepare(found.xid, held)
            self._open = None

    def _read_outcome(self, header: Header, statement: Statement) -> None:
        held = self._prepared.take(statement.xid)
        if held is None:
            raise SourceRefused(
                f"an XA transaction that ends before {self._where()} was prepared before the stream began",
                "its rows are not known: take a snapshot of the tables, and start behind that place",
            )
        if held.gtid is not None:
            self._done.append(held.gtid)
        if statement.kind is StatementKind.XA_COMMIT:
            self._replay(header, held)

    def _replay(self, header: Header, held: HeldTransaction) -> None:
        """The rows of an XA transaction lie where it is committed."""
        for one, body in held.events:
            self._read(one._replace(size=header.size), body)

    def _refuse_statement(self, statement: Statement, schema: str) -> None:
        raise SourceRefused(
            f"the binlog has {statement.words} in {schema!r} as a statement, not as rows, before {self._where()}",
            "SET GLOBAL binlog_format=ROW on the server, find the session that sets it otherwise, and start behind it",
        )

    # Rows.

    def _read_table_map(self, _: Header, body: bytes) -> None:
        reader = Reader(body, "TABLE_MAP")
        table_id = reader.integer(6)
        reader.take(2)
        table = self._tables[table_id] = self._shapes.read(reader.rest())
        if table.number < 0:
            return
        changed = self._shapes.show(table)
        if changed is not None:
            self._require_transaction("TABLE_MAP")
            self._block.add_schema_change(*changed)

    def _read_rows(self, header: Header, body: bytes) -> None:
        form = _ROWS[header.type]
        self._require_transaction("rows")
        reader = Reader(body, "rows")
        table_id, flags = reader.integer(6), reader.integer(2)
        if form.extra:
            reader.take(reader.integer(2) - 2)
        table = self._tables.get(table_id)
        if table is None:
            if table_id != _DUMMY:
                raise ProtocolError(f"a rows event before {self._where()} is of a table that no TABLE_MAP event names")
        elif table.number >= 0:
            self._read_images(header, reader, table, form)
        if flags & _STATEMENT_END:
            self._tables.clear()

    def _read_images(self, header: Header, reader: Reader, table: Table, form: _RowsForm) -> None:
        columns = reader.packed()
        if columns != len(table.cells):
            raise ProtocolError(
                f"a rows event of {table.name} has {columns} columns where its TABLE_MAP has {len(table.cells)}"
            )
        present = [reader.take((columns + 7) // 8) for _ in range(2 if form.op is RowOp.UPDATE else 1)]
        layouts = tuple(self._shapes.layout(table, bits) for bits in present)
        rows = reader.rest()
        if form.compressed:
            rows = events.inflate(rows, "rows")
        self._block.add_rows(table, form.op, layouts, rows, self._place(header))

    def _place(self, header: Header) -> int:
        """Where an event begins: the file's number and the place in it."""
        return _file_number(self._file) << 32 | max(0, self._at - header.size) & 0xFFFF_FFFF

    def _require_transaction(self, what: str) -> None:
        if self._open is None:
            raise ProtocolError(f"a {what} event before {self._where()} is outside of any transaction")

    def _refuse_partial(self, *_: object) -> None:
        raise SourceRefused(
            f"the binlog has an update of a part of a JSON document before {self._where()}",
            "SET GLOBAL binlog_row_value_options='' on the server, and start behind that place",
        )

    # What was read.

    def _finish(self) -> Decoded:
        made = self._block.finish(self._open is not None)
        self._changes = made.open_changes
        completed, self._completed = tuple(self._completed), []
        return Decoded(
            self._source(self._identity),
            self._standing(),
            completed,
            made.transactions,
            made.changes,
            made.truncates,
            made.schema_changes,
            made.ddl,
            made.metadata,
            made.nbytes,
        )

    def _standing(self) -> Standing:
        held, resume = self._open, self._resume
        if resume is not None:
            repeated = self._changes if held is not None and self._is_resumed(held) else 0
            changes = max(resume.changes, repeated)
            return Standing(*self._safe, OpenTransaction(resume.gtid, resume.commit, changes))
        if held is None or not self._changes:
            return Standing(*self._safe)
        return Standing(*self._safe, OpenTransaction(held.gtid, held.commit, self._changes))


def _identity(gtid: Gtid | None, flavor: Flavor) -> str:
    """What the numbers of GTIDs are counted in."""
    if gtid is None:
        return ""
    return gtid.source.partition("-")[0] if flavor == "mariadb" else gtid.source


def _file_number(file: str) -> int:
    """4711 of `binlog.004711`."""
    digits = file.rpartition(".")[2]
    return int(digits) if digits.isascii() and digits.isdigit() else 0


@dataclass(frozen=True, slots=True)
class _RowsForm:
    """Of a type of rows events. extra: whether version 2's extra data stand behind the flags."""

    op: RowOp
    extra: bool = False
    compressed: bool = False


_ROWS: dict[int, _RowsForm] = {
    EventType.WRITE_ROWS_V1: _RowsForm(RowOp.INSERT),
    EventType.UPDATE_ROWS_V1: _RowsForm(RowOp.UPDATE),
    EventType.DELETE_ROWS_V1: _RowsForm(RowOp.DELETE),
    EventType.WRITE_ROWS: _RowsForm(RowOp.INSERT, extra=True),
    EventType.UPDATE_ROWS: _RowsForm(RowOp.UPDATE, extra=True),
    EventType.DELETE_ROWS: _RowsForm(RowOp.DELETE, extra=True),
    EventType.WRITE_ROWS_COMPRESSED_V1: _RowsForm(RowOp.INSERT, compressed=True),
    EventType.UPDATE_ROWS_COMPRESSED_V1: _RowsForm(RowOp.UPDATE, compressed=True),
    EventType.DELETE_ROWS_COMPRESSED_V1: _RowsForm(RowOp.DELETE, compressed=True),
    EventType.WRITE_ROWS_COMPRESSED: _RowsForm(RowOp.INSERT, extra=True, compressed=True),
    EventType.UPDATE_ROWS_COMPRESSED: _RowsForm(RowOp.UPDATE, extra=True, compressed=True),
    EventType.DELETE_ROWS_COMPRESSED: _RowsForm(RowOp.DELETE, extra=True, compressed=True),
}

_STATEMENT_END = 1
"""Flag of rows events: table ids mean nothing behind it."""

_DUMMY = 0xFF_FFFF
"""The table id of an event that has no rows, and only ends a statement."""

_ENDS = {StatementKind.COMMIT, StatementKind.ROLLBACK}

_READ: dict[int, Callable[[Decoder, Header, bytes], None]] = {
    EventType.FORMAT_DESCRIPTION: Decoder._read_format,
    EventType.ROTATE: Decoder._read_rotate,
    EventType.HEARTBEAT: Decoder._read_heartbeat,
    EventType.HEARTBEAT_V2: Decoder._read_heartbeat,
    EventType.INCIDENT: Decoder._read_incident,
    EventType.GTID: Decoder._read_gtid,
    EventType.ANONYMOUS_GTID: Decoder._read_gtid,
    EventType.GTID_TAGGED: Decoder._read_gtid,
    EventType.MARIADB_GTID: Decoder._read_gtid,
    EventType.XID: Decoder._read_xid,
    EventType.XA_PREPARE: Decoder._read_xa_prepare,
    EventType.QUERY: Decoder._read_query,
    EventType.QUERY_COMPRESSED: Decoder._read_query,
    EventType.TABLE_MAP: Decoder._read_table_map,
    EventType.PARTIAL_UPDATE_ROWS: Decoder._refuse_partial,
    **dict.fromkeys(_ROWS, Decoder._read_rows),
}

_HELD = {EventType.TABLE_MAP, EventType.PARTIAL_UPDATE_ROWS, *_ROWS}
"""Events of an XA transaction that wait for its outcome."""

_SKIPPED = {
    EventType.STOP,
    EventType.INTVAR,
    EventType.RAND,
    EventType.USER_VAR,
    EventType.IGNORABLE,
    EventType.ROWS_QUERY,
    EventType.PREVIOUS_GTIDS,
    EventType.TRANSACTION_CONTEXT,
    EventType.VIEW_CHANGE,
    EventType.ANNOTATE_ROWS,
    EventType.BINLOG_CHECKPOINT,
    EventType.GTID_LIST,
}
"""Events that say nothing of rows."""

_BEGINS = {EventType.GTID, EventType.ANONYMOUS_GTID, EventType.GTID_TAGGED, EventType.MARIADB_GTID}
