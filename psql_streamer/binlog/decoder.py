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

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from psql_streamer.binlog import events
from psql_streamer.binlog.block import BlockBuilder
from psql_streamer.binlog.decoded import Decoded, OpenTransaction, Standing
from psql_streamer.binlog.events import EventType, Gtid, GtidEvent, Header, Query
from psql_streamer.binlog.rows_events import ROWS, RowsReader
from psql_streamer.binlog.savepoints import BEGIN, Savepoints
from psql_streamer.binlog.shapes import TableShapes, Wanted
from psql_streamer.binlog.statement_text import hide_values
from psql_streamer.binlog.statements import Statement, StatementKind, read_statement
from psql_streamer.binlog.stream import EventStream
from psql_streamer.binlog.xa import HeldTransaction, PreparedTransactions
from psql_streamer.errors import PositionRefused, ProtocolError, SourceRefused
from psql_streamer.model import Relation, SchemaChange, SourceInfo
from psql_streamer.shown_commands import show_command

Flavor = Literal["mysql", "mariadb"]


@dataclass(slots=True)
class _Transaction:
    """The one that is open.

    grouped: whether it has more than one statement, up to XID or COMMIT. unfinished: whether its ALTER is not told,
    because it has not changed the table.
    """

    gtid: Gtid | None
    commit: int
    moment: int
    grouped: bool = False
    unfinished: bool = False


class Decoder:
    """Decodes the events of one replication session, in order.

    source: what events say of their source, by its identity (the server's uuid, MariaDB's domain, empty without GTIDs).
    wanted: whether the changes of a table are to be decoded, by schema and table.
    file, position: where the session was started, until a ROTATE event says it.
    resume: what of the next transaction is delivered; its changes are left out when it comes again.
    remembered: the shapes that tables had there, by Relation.id; what differs is a schema change.
    transaction_metadata: whether to say where transactions begin and end, and to count their changes by table.
    most_bytes: of rows in one piece. most_prepared: bytes of XA transactions that are prepared and not committed.
    replayed: how many XA transactions were committed so far. folds_names: whether the server compares names of tables
    in lower case.
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
        transaction_metadata: bool = False,
        most_bytes: int = 8 << 20,
        most_prepared: int = 64 << 20,
        folds_names: bool = False,
    ) -> None:
        self._source = source
        self._flavor = flavor
        self._stream = EventStream(file, position)
        self._safe = file, position, 0  # behind the last transaction that is wholly behind
        self._resume = resume
        self._shapes = TableShapes(wanted, flavor == "mariadb", remembered or {}, folds_names)
        self._open: _Transaction | None = None
        self._changes = 0  # of the open transaction, in pieces that were given
        self._rows = RowsReader(self._shapes)
        self._identity = ""
        self._block = BlockBuilder(self._shapes, transaction_metadata)
        self._most_bytes = most_bytes
        self._savepoints = Savepoints()
        self._torn: list[str] = []
        self._completed: list[Gtid] = []
        self._done: list[Gtid] = []  # behind an XA transaction that is prepared
        self._prepared = PreparedTransactions(most_prepared)
        self._held: HeldTransaction | None = None  # the open transaction, if it is an XA transaction
        self.replayed = 0

    def decode(self, binlog: Iterable[bytes]) -> Iterator[Decoded]:
        """Whole events in their order, each without the OK byte in front of it.

        Gives what they hold: one piece, or more where the source changes, or where they hold more than `most_bytes`.
        ProtocolError when bytes are not the binlog's. SourceRefused when something in it cannot be read.
        """
        for header, body in self._stream.read(binlog):
            if header.type in _BEGINS:
                begin = _read_begin(header, body)
                if self._identify_source(begin.gtid) != self._identity and not self._block.empty:
                    yield self._finish()
                self._read_gtid(header, begin)
                continue
            if self._block.nbytes >= self._most_bytes:
                yield self._finish()
            self._read(header, body)
        body = b""  # the last one may be large, and is in the block
        yield self._finish()

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun whose end has not come."""
        return self._open is not None

    @property
    def prepared(self) -> int:
        """XA transactions that are prepared, whose outcome has not come."""
        return len(self._prepared)

    @property
    def reached(self) -> tuple[str, int]:
        """Where the last event ended, outside of a transaction; else where the open one begins, or later."""
        return self._stream.file, self._stream.at

    def learn(self, shape: Relation) -> tuple[Relation, SchemaChange | None]:
        """A table's shape where the stream has got, as the catalog has it; with its version, and what is new about it.

        The stream shows a table's shape with the next change of it. Rows of a snapshot may come before that.
        """
        relation, before, is_new = self._shapes.learn(shape)
        return relation, SchemaChange(relation, before, 0, 0, 0) if is_new else None

    def _read(self, header: Header, body: bytes) -> None:
        if self._held is not None and header.type in _HELD:
            self._prepared.hold(self._held, header, body)
            return
        read = _READ.get(header.type)
        if read is not None:
            read(self, header, body)
        elif header.type not in _SKIPPED and not header.flags & events.IGNORABLE:
            raise SourceRefused(
                f"a {events.name_event(header.type)} event, which this version cannot read, ends at {self._stream}"
            )

    # Files.

    def _read_format(self, *_: object) -> None:
        self._rows.forget_tables()
        self._leave_torn_transaction()
        self._mark_safe()

    def _leave_torn_transaction(self) -> None:
        """A transaction is in one file. A server that crashes while it writes one leaves a part at the file's end, and
        its replicas roll that back.
        """
        torn = self._open
        if torn is None:
            return
        place = self._find_way_back(BEGIN)
        if place is None:
            raise PositionRefused(
                f"the server crashed while it wrote a transaction, of which a part is before {self._stream}, and some "
                "of its rows were delivered",
                self._describe_gap_remedy(),
            )
        self._take_back(place)
        self._torn.append(str(torn.gtid or ""))
        self._open = None
        self._block.end()

    def _read_rotate(self, *_: object) -> None:
        self._rows.forget_tables()
        self._mark_safe()

    def _read_heartbeat(self, *_: object) -> None:
        self._mark_safe()

    def _mark_safe(self) -> None:
        if self._open is None and not len(self._prepared):
            self._safe = self._stream.file, self._stream.at, self._stream.begun

    def _read_incident(self, *_: object) -> None:
        raise SourceRefused(
            f"the server lost events of its binlog before {self._stream} (INCIDENT)",
            "its log says why; take a snapshot of the tables, and start behind that place",
        )

    # Transactions.

    def _describe_gap_remedy(self) -> str:
        """Where a transaction is gone of which some was delivered. Another one gets its GTID: whoever started behind
        that would miss it.
        """
        name = self._source(self._identity).name
        command = show_command("snapshot", "start", "--source", name, "--accept-gap")
        return (
            f"stop the service and accept the gap ({command}): the next start sends all rows anew; keys that "
            "the tables lack are to be deleted"
        )

    def _identify_source(self, gtid: Gtid | None) -> str:
        """What the numbers of GTIDs are counted in: the server's uuid with the tag, or MariaDB's domain."""
        if gtid is None:
            return ""
        return gtid.source.partition("-")[0] if self._flavor == "mariadb" else gtid.source

    def _read_gtid(self, header: Header, found: GtidEvent) -> None:
        opened = self._begin(header, found.gtid, found.moment)
        if header.type == EventType.MARIADB_GTID:
            opened.grouped, opened.unfinished = not found.standalone, found.unfinished
            if found.prepares:
                self._hold(opened)

    def _begin(self, header: Header, gtid: Gtid | None, moment: int = 0) -> _Transaction:
        if self._open is not None:
            raise ProtocolError(f"a transaction begins within another one before {self._stream}")
        self._identity = self._identify_source(gtid)
        commit = gtid.number if gtid else self._stream.place(header)
        opened = self._open = _Transaction(gtid, commit, moment or header.timestamp * 1_000_000)
        self._changes = 0
        self._held = None
        self._savepoints.begin(self._block.place)
        shown = str(gtid) if gtid else f"{self._stream.file}:{self._stream.at - header.size}"
        self._block.begin(commit, opened.moment, shown, self._count_delivered(opened))
        return opened

    def _count_delivered(self, opened: _Transaction) -> int:
        """How many of its changes were. PositionRefused where they were those of another one with its GTID: a server
        that crashed while it wrote that one gives the GTID again, in a later file.
        """
        resume = self._resume
        if resume is None or not self._is_resumed(opened):
            self._require_resumed(opened)
            return 0
        if resume.changes and resume.file not in ("", self._stream.file):
            raise PositionRefused(
                f"the server crashed while it wrote transaction {opened.gtid} to {resume.file}, of which some rows "
                f"were delivered, and has given its GTID to another one before {self._stream}",
                self._describe_gap_remedy(),
            )
        return resume.changes

    def _require_resumed(self, opened: _Transaction) -> None:
        """Within a domain of MariaDB, the one of which some was delivered comes before those of greater numbers."""
        resume = self._resume
        if resume is None or resume.gtid is None or opened.gtid is None or self._flavor == "mysql":
            return
        same_domain = self._identify_source(opened.gtid) == self._identify_source(resume.gtid)
        if resume.changes and same_domain and opened.commit >= resume.commit:
            raise PositionRefused(
                f"transaction {resume.gtid}, of which some rows were delivered, is not in the binary log of this "
                f"server: a failover has lost it, and {opened.gtid} is in its place before {self._stream}",
                self._describe_gap_remedy(),
            )

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
        self._read_statement(header, query)

    def _read_load(self, header: Header, body: bytes) -> None:
        self._read_statement(header, events.read_load_query(body))

    def _read_statement(self, header: Header, query: Query) -> None:
        statement = _BEGIN
        if query.statement != b"BEGIN":
            statement = self._shapes.names.spell_statement(read_statement(query.statement, query.schema))
        self._require_rows(statement, query)
        if self._open is not None or statement.kind is not StatementKind.COMMIT:
            opened = self._open or self._begin(header, None)
            if self._flavor == "mysql":  # MariaDB's transactions of rows have no statement that says it
                self._block.note_thread(query.thread_id)
            self._follow(header, statement, opened)

    def _follow(self, header: Header, statement: Statement, opened: _Transaction) -> None:
        """What a statement does to the transaction."""
        kind = statement.kind
        if kind in (StatementKind.BEGIN, StatementKind.XA_START):
            opened.grouped = True
            if kind is StatementKind.XA_START and self._held is None:
                self._hold(opened)
            return
        if kind is StatementKind.SAVEPOINT:
            self._savepoints.set(statement.savepoint, self._place)
        if kind in _TAKES_BACK:
            self._roll_back(statement.savepoint)
        if kind in (StatementKind.XA_COMMIT, StatementKind.XA_ROLLBACK):
            self._read_outcome(header, statement)
        if kind in (StatementKind.DDL, StatementKind.TRUNCATE) and not opened.unfinished:
            of_temporary = header.flags & events.THREAD_SPECIFIC and statement.words in _OF_ONE_TABLE
            if not of_temporary:
                self._read_ddl(header, statement)
        if kind in _ENDS or not opened.grouped:
            self._end()

    def _hold(self, opened: _Transaction) -> None:
        """It is an XA transaction, whose rows wait for its outcome."""
        self._held = HeldTransaction(opened.gtid)
        self._savepoints.begin(0)

    @property
    def _place(self) -> int:
        """How many items were gathered where the open transaction's go."""
        return self._block.place if self._held is None else len(self._held.events)

    def _roll_back(self, savepoint: str) -> None:
        """What the open transaction has behind a savepoint. SourceRefused where that was given already."""
        place = self._find_way_back(savepoint)
        if place is None:
            raise SourceRefused(
                f"a transaction of which rows are in the binlog was rolled back before {self._stream}, and some of its "
                "rows were delivered",
                "look at the rows of its tables, and start behind it",
            )
        self._take_back(place)

    def _take_back(self, place: int) -> None:
        """Items of the open transaction, from a place on."""
        if self._held is not None:
            self._prepared.take_back(self._held, place)
        else:
            self._block.take_back(place)

    def _find_way_back(self, savepoint: str) -> int | None:
        """Its place; None where something behind it was given, by this session or by one before."""
        place, resume = self._savepoints.find(savepoint), self._resume
        repeated = self._open is not None and self._is_resumed(self._open) and resume is not None and resume.changes
        return None if place is None or (repeated and place < self._place) else place

    def _read_ddl(self, header: Header, statement: Statement) -> None:
        if statement.kind is StatementKind.DDL:
            self._block.add_ddl(statement)
        elif self._shapes.wants(statement.schema, statement.table):
            relation = self._shapes.look_up_shape(statement.schema, statement.table)
            self._block.add_truncate(relation, self._stream.place(header))

    def _read_xa_prepare(self, header: Header, body: bytes) -> None:
        found, held, opened = events.read_xa_prepare(body), self._held, self._open
        self._held = None
        if held is None or opened is None:
            raise ProtocolError(f"an XA_PREPARE event before {self._stream} is outside of any XA transaction")
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
            if statement.kind is StatementKind.XA_ROLLBACK:
                return  # nothing was committed, so nothing is missing
            raise SourceRefused(
                f"an XA transaction that is committed before {self._stream} was prepared before the stream began",
                "its rows are not known: take a snapshot of the tables, and start behind that place",
            )
        if held.gtid is not None:
            self._done.append(held.gtid)
        if statement.kind is StatementKind.XA_COMMIT:
            self._replay(header, held)

    def _replay(self, header: Header, held: HeldTransaction) -> None:
        """The rows of an XA transaction lie where it is committed."""
        self.replayed += 1
        for one, body in held.events:
            self._read(one._replace(size=header.size), body)

    def _require_rows(self, statement: Statement, query: Query) -> None:
        """SourceRefused where a statement changed rows."""
        of_system_table = statement.schema in _SYSTEM_SCHEMAS and not statement.calls_function
        if statement.kind is StatementKind.ROWS and not of_system_table:
            raise SourceRefused(
                f"the binlog has {statement.words} in {query.schema!r} as a statement, not as rows, of session "
                f"{query.thread_id} before {self._stream}: {hide_values(query.statement)}",
                "SET GLOBAL binlog_format=ROW, find the session that sets it otherwise (while it lives, it is in "
                "information_schema.PROCESSLIST), and start behind that place; if its format is ROW, the table may be "
                "one that MariaDB writes as statements alone, which check names",
            )

    # Rows.

    def _read_table_map(self, _: Header, body: bytes) -> None:
        table = self._rows.read_table_map(body)
        changed = self._shapes.show(table) if table.number >= 0 else None
        if changed is not None:
            self._require_transaction("TABLE_MAP")
            self._block.add_schema_change(*changed)

    def _read_rows(self, header: Header, body: bytes) -> None:
        self._require_transaction("rows")
        found = self._rows.read_rows(header, body)
        if found is not None:
            self._block.add_rows(found, self._stream.place(header))

    def _require_transaction(self, what: str) -> None:
        if self._open is None:
            raise ProtocolError(f"a {what} event before {self._stream} is outside of any transaction")

    def _refuse_partial(self, _: Header, body: bytes) -> None:
        if not self._rows.wants(body):
            return
        raise SourceRefused(
            f"the binlog has an update of a part of a JSON document before {self._stream}",
            "SET GLOBAL binlog_row_value_options='' on the server, and start behind that place",
        )

    # What was read.

    def _finish(self) -> Decoded:
        if self._held is None:
            self._savepoints.move_on(self._block.place)
        made = self._block.finish(self._open is not None)
        self._changes = made.open_changes
        if not self._rows.in_statement:
            self._shapes.forget_old()
        completed, self._completed = tuple(self._completed), []
        torn, self._torn = tuple(self._torn), []
        return Decoded(
            self._source(self._identity),
            self._make_standing(),
            completed,
            made.transactions,
            made.changes,
            made.truncates,
            made.schema_changes,
            made.statements,
            made.ddl,
            made.metadata,
            made.nbytes,
            torn,
        )

    def _make_standing(self) -> Standing:
        held, resume = self._open, self._resume
        if resume is not None:
            repeated = self._changes if held is not None and self._is_resumed(held) else 0
            changes = max(resume.changes, repeated)
            return Standing(*self._safe, replace(resume, changes=changes))
        if held is None or not self._changes:
            return Standing(*self._safe)
        return Standing(*self._safe, OpenTransaction(held.gtid, held.commit, self._changes, self._stream.file))


def _read_begin(header: Header, body: bytes) -> GtidEvent:
    if header.type == EventType.MARIADB_GTID:
        return events.read_mariadb_gtid(body, header.server_id)
    if header.type == EventType.GTID_TAGGED:
        return events.read_tagged_gtid(body)
    return events.read_gtid(body, header.type == EventType.ANONYMOUS_GTID)


_BEGIN = read_statement(b"BEGIN", "")

_SYSTEM_SCHEMAS = {"mysql", "sys"}
"""Services of providers write statements about their own tables there."""

_TAKES_BACK = {StatementKind.ROLLBACK, StatementKind.ROLLBACK_TO}
_OF_ONE_TABLE = {"TRUNCATE TABLE", "ALTER TABLE"}
"""Where such a statement uses a temporary table, it changes that one, whatever table it hides. Others may do both."""

_ENDS = {StatementKind.COMMIT, StatementKind.ROLLBACK}

_READ: dict[int, Callable[[Decoder, Header, bytes], None]] = {
    EventType.FORMAT_DESCRIPTION: Decoder._read_format,
    EventType.ROTATE: Decoder._read_rotate,
    EventType.HEARTBEAT: Decoder._read_heartbeat,
    EventType.HEARTBEAT_V2: Decoder._read_heartbeat,
    EventType.INCIDENT: Decoder._read_incident,
    EventType.XID: Decoder._read_xid,
    EventType.XA_PREPARE: Decoder._read_xa_prepare,
    EventType.QUERY: Decoder._read_query,
    EventType.QUERY_COMPRESSED: Decoder._read_query,
    EventType.EXECUTE_LOAD_QUERY: Decoder._read_load,
    EventType.TABLE_MAP: Decoder._read_table_map,
    EventType.PARTIAL_UPDATE_ROWS: Decoder._refuse_partial,
    **dict.fromkeys(ROWS, Decoder._read_rows),
}

_HELD = {EventType.TABLE_MAP, EventType.PARTIAL_UPDATE_ROWS, *ROWS}
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
    EventType.START_ENCRYPTION,
    EventType.BEGIN_LOAD_QUERY,
    EventType.APPEND_BLOCK,
    EventType.DELETE_FILE,
}
"""Events that say nothing of rows, and the parts of a file that an EXECUTE_LOAD_QUERY event loads. What is encrypted in
the files, the server has decrypted before it sends it.
"""

_BEGINS = {EventType.GTID, EventType.ANONYMOUS_GTID, EventType.GTID_TAGGED, EventType.MARIADB_GTID}
