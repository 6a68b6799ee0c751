"""What the decoder gives: changes, and where the stream stands behind them."""

from __future__ import annotations

from dataclasses import dataclass

from psql_streamer.binlog.events import Gtid
from psql_streamer.binlog.statements import Statement
from psql_streamer.cells import CellTable
from psql_streamer.model import SchemaChange, SourceInfo, TableStatement, TransactionMetadata, Transactions, Truncate


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction of which changes were delivered, and whose end was not: the next one that comes.

    gtid: None where it has none. commit: its commit number. changes: how many of its changes count as delivered, from
    its first one; truncates count, too, and changes of tables that are not wanted do not. file: of the binlog, in which
    it is; empty where that is not known, as at another server.
    """

    gtid: Gtid | None
    commit: int
    changes: int
    file: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the stream stands.

    file, position: where the last transaction ends that is wholly behind; from there the server can be asked.
    begun: when that file was begun, seconds since 1970; 0 where it has not been said. open: what of the transaction
    that comes next is delivered.
    """

    file: str
    position: int
    begun: int = 0
    open: OpenTransaction | None = None


@dataclass(frozen=True, slots=True)
class Decoded:
    """The changes of some events, of one source.

    completed: the GTIDs of the transactions that are wholly behind since the last one, in their order; a source adds
    them to those that it has.
    statements: of tables that are wanted, as Batch has them. ddl: all statements that may change tables.
    transaction_metadata: as Batch has it; None where nobody wants it. nbytes: of the rows in the binlog.
    torn: the GTIDs of transactions, empty without, of which a crash has left a part in the binlog.
    """

    source: SourceInfo
    standing: Standing
    completed: tuple[Gtid, ...]
    transactions: Transactions
    changes: CellTable
    truncates: tuple[Truncate, ...]
    schema_changes: tuple[SchemaChange, ...]
    statements: tuple[TableStatement, ...]
    ddl: tuple[Statement, ...]
    transaction_metadata: TransactionMetadata | None
    nbytes: int
    torn: tuple[str, ...] = ()
