"""What events say of their source, and of the place of a change in it: fields by kind of source.

Changes of PostgreSQL's have its own words (xid, commit_lsn, lsn), those of MySQL and MariaDB theirs (gtid, file, pos).
Those of any other kind have a commit number, which increases in the order of the commits, and the transaction's id
where the source has one.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.events.binlog_names import (
    compute_file_offset,
    compute_file_offsets,
    find_gtid,
    render_file,
    render_files,
    render_gtids,
    render_server_members,
)
from psql_streamer.events.digits import convert_one_to_iso, to_digits, to_iso
from psql_streamer.events.identity import render_lsns
from psql_streamer.events.json.json_text import join, render_name
from psql_streamer.events.per_transaction import Fragment
from psql_streamer.few_rows import FewTransaction
from psql_streamer.lsn import Lsn
from psql_streamer.model import OF_BINARY_LOGS, POSTGRESQL, SnapshotRows, SourceInfo, Transactions

Numbers = NDArray[np.uint64]
Texts = dict[str, pa.Array]


@dataclass(frozen=True, slots=True)
class Names:
    """What a transaction's id, its commit number and the place of a change are called."""

    id: str
    commit: str
    place: str


def choose_snapshot_word(snapshot: SnapshotRows) -> bytes:
    """Debezium's word for what a snapshot is: one that an operator asked for is incremental there."""
    return b"incremental" if snapshot.on_demand else b"true"


class SourceFields(ABC):
    """The fields of one kind of source. Whatever is of a transaction is given for each transaction.

    in_events, in_others: names in the format `event`, and in `envelope`, records of shapes, and headers.
    """

    event_names: ClassVar[Names]
    other_names: ClassVar[Names]

    @abstractmethod
    def render_ids(self, transactions: Transactions) -> pa.Array:
        """JSON of the id of each transaction."""

    @abstractmethod
    def find_id(self, transactions: Transactions, tx: int) -> int | str | None:
        """The id of one transaction."""

    @abstractmethod
    def show_id(self, number: int) -> bytes:
        """JSON of an id that is a number."""

    @abstractmethod
    def show(self, of: Numbers) -> pa.Array:
        """Commit numbers, or places, as people write them."""

    @abstractmethod
    def render_numbers(self, of: Numbers) -> pa.Array:
        """Commit numbers, or places, as they stand in JSON."""

    @abstractmethod
    def show_commit(self, commit: int) -> str | int:
        """A commit number as it stands in JSON, and for people."""

    def render_event_members(self, transactions: Transactions) -> pa.Array:
        """Members of the format `event`, each behind a comma: its time and what names the transaction."""
        return join(
            b',"Timestamp":"',
            to_iso(transactions.commit_ts),
            b'Z","%s":' % self.event_names.id.encode(),
            self.render_ids(transactions),
            b',"%s":' % self.event_names.commit.encode(),
            to_digits(transactions.commit),
        )

    def render_event_member(self, transaction: FewTransaction) -> bytes:
        """The members of `event` for one transaction."""
        return b',"Timestamp":"%sZ","%s":%s,"%s":%d' % (
            convert_one_to_iso(transaction.moment),
            self.event_names.id.encode(),
            self.show_id(transaction.id),
            self.event_names.commit.encode(),
            transaction.commit,
        )

    def render_event_snapshot(self, of: Transactions, tx: int) -> bytes:
        """The members of `event` for rows of a snapshot. There is no transaction, so there is no id."""
        return b',"Timestamp":"%sZ","%s":%d,"Snapshot":%s%s' % (
            convert_one_to_iso(int(of.commit_ts[tx])),
            self.event_names.commit.encode(),
            of.commit[tx],
            render_name(of.snapshots[tx].id),
            b',"OnDemand":true' if of.snapshots[tx].on_demand else b"",
        )

    def render_event_outside(self, commit: int) -> bytes:
        """Members of the format `event` for a message outside of any transaction."""
        return b',"%s":%d' % (self.event_names.commit.encode(), commit)

    def render_event_places(self, places: Numbers | None) -> tuple[Fragment, ...]:
        """Members of `event` for where each change lies."""
        return () if places is None else (b',"%s":' % self.event_names.place.encode(), to_digits(places))

    def render_event_place(self, place: int) -> bytes:
        """The member of `event` for where one change lies."""
        return b',"%s":%d' % (self.event_names.place.encode(), place)

    def render_envelope_members(self, transactions: Transactions) -> pa.Array:
        """Members of `source` in `envelope`."""
        return join(
            b',"ts_ms":',
            to_digits(transactions.commit_ts // 1000),
            b',"%s":' % self.other_names.id.encode(),
            self.render_ids(transactions),
            b',"%s":' % self.other_names.commit.encode(),
            self.render_numbers(transactions.commit),
        )

    def render_envelope_member(self, transaction: FewTransaction) -> bytes:
        """The members of `source` in `envelope` for one transaction."""
        names, shown = self.other_names, self.show_commit(transaction.commit)
        return b',"ts_ms":%d,"%s":%s,"%s":%s' % (
            transaction.moment // 1000,
            names.id.encode(),
            self.show_id(transaction.id),
            names.commit.encode(),
            json.dumps(shown).encode(),
        )

    def render_envelope_snapshot(self, of: Transactions, tx: int) -> bytes:
        """The members of `source` in `envelope` for rows of a snapshot."""
        names, snapshot = self.other_names, of.snapshots[tx]
        return b',"ts_ms":%d,"%s":null,"%s":%s,"snapshot":"%s","snapshot_id":%s' % (
            of.commit_ts[tx] // 1000,
            names.id.encode(),
            names.commit.encode(),
            json.dumps(self.show_commit(int(of.commit[tx]))).encode(),
            choose_snapshot_word(snapshot),
            render_name(snapshot.id),
        )

    def render_envelope_outside(self, commit: int) -> bytes:
        """The same for a message outside of any transaction."""
        names, shown = self.other_names, json.dumps(self.show_commit(commit))
        return f',"ts_ms":null,"{names.id}":null,"{names.commit}":{shown}'.encode()

    def render_envelope_places(self, places: Numbers | None) -> tuple[Fragment, ...]:
        """Members of `source` in `envelope` for where each change lies."""
        return () if places is None else (b',"%s":' % self.other_names.place.encode(), self.render_numbers(places))

    def render_envelope_place(self, place: int) -> bytes:
        """The member of `source` in `envelope` for where one change lies."""
        return b',"%s":%s' % (self.other_names.place.encode(), json.dumps(self.show_commit(place)).encode())

    def describe_transaction(self, transactions: Transactions, tx: int) -> dict[str, Any]:
        """What a change of a table's shape says of its transaction."""
        commit = self.show_commit(int(transactions.commit[tx]))
        return {self.other_names.id: self.find_id(transactions, tx), self.other_names.commit: commit}

    def render_headers(self, transactions: Transactions, tx: NDArray[np.int32]) -> Texts:
        """Headers that name each change's transaction."""
        named = {} if transactions.ids is None else {self.other_names.id: transactions.select_id_texts(tx)}
        return {self.other_names.commit: self.show(transactions.commit[tx]), **named}

    def render_transaction_headers(self, transaction: FewTransaction) -> dict[str, str]:
        """Headers that name one transaction."""
        return {**self.render_headers_outside(transaction.commit), self.other_names.id: str(transaction.id)}

    def render_headers_outside(self, commit: int) -> dict[str, str]:
        """The same for a message outside of any transaction."""
        return {self.other_names.commit: str(self.show_commit(commit))}


class PostgresFields(SourceFields):
    """The commit number is the LSN of the commit, a place the LSN of the change, the id the xid."""

    event_names = Names("XID", "CommitLSN", "WALPosition")
    other_names = Names("xid", "commit_lsn", "lsn")

    def render_ids(self, transactions: Transactions) -> pa.Array:
        return pc.fill_null(transactions.list_id_texts(), b"null")

    def show_id(self, number: int) -> bytes:
        return b"%d" % number

    def find_id(self, transactions: Transactions, tx: int) -> int | None:
        if tx in transactions.snapshots:
            return None
        return int(transactions.find_id(tx) or 0)

    def show(self, of: Numbers) -> pa.Array:
        return render_lsns(of)

    def render_numbers(self, of: Numbers) -> pa.Array:
        return join(b'"', render_lsns(of), b'"')

    def show_commit(self, commit: int) -> str:
        return str(Lsn(commit))


class OtherFields(SourceFields):
    """The fields of every source that has no words of its own here."""

    event_names = Names("Transaction", "Commit", "Place")
    other_names = Names("transaction", "commit", "place")

    def render_ids(self, transactions: Transactions) -> pa.Array:
        if transactions.ids is None:
            return pa.repeat(pa.scalar(b"null", pa.binary()), len(transactions))
        found = (self.find_id(transactions, tx) for tx in range(len(transactions)))
        return pa.array([b"null" if one is None else render_name(one) for one in found], pa.binary())

    def show_id(self, number: int) -> bytes:
        return render_name(str(number))

    def find_id(self, transactions: Transactions, tx: int) -> str | None:
        return transactions.find_id(tx)

    def show(self, of: Numbers) -> pa.Array:
        return to_digits(of)

    def render_numbers(self, of: Numbers) -> pa.Array:
        return to_digits(of)

    def show_commit(self, commit: int) -> int:
        return commit


class BinlogFields(OtherFields):
    """Of a binary log: the id is the GTID, a place the file and the offset in it.

    A transaction also has the server that it was made on, and the session there.
    """

    event_names = Names("GTID", "Commit", "Position")
    other_names = Names("gtid", "commit", "pos")

    def __init__(self, source: SourceInfo) -> None:
        self._source = source

    def render_ids(self, transactions: Transactions) -> pa.Array:
        return render_gtids(self._source, transactions)

    def find_id(self, transactions: Transactions, tx: int) -> str | None:
        return find_gtid(self._source, transactions, tx)

    def render_event_members(self, transactions: Transactions) -> pa.Array:
        named = super().render_event_members(transactions)
        return join(named, *render_server_members(self._source, transactions, b"ServerID", b"Thread"))

    def render_event_places(self, places: Numbers | None) -> tuple[Fragment, ...]:
        return self._render_places(places, b"File", b"Position")

    def render_event_place(self, place: int) -> bytes:
        return self._render_place(place, b"File", b"Position")

    def render_envelope_members(self, transactions: Transactions) -> pa.Array:
        named = super().render_envelope_members(transactions)
        return join(named, *render_server_members(self._source, transactions, b"server_id", b"thread"))

    def render_envelope_places(self, places: Numbers | None) -> tuple[Fragment, ...]:
        return self._render_places(places, b"file", b"pos")

    def render_envelope_place(self, place: int) -> bytes:
        return self._render_place(place, b"file", b"pos")

    def _render_places(self, places: Numbers | None, file: bytes, offset: bytes) -> tuple[Fragment, ...]:
        if places is None:
            return ()
        return (
            b',"%s":' % file,
            render_files(self._source, places),
            b',"%s":' % offset,
            to_digits(compute_file_offsets(places)),
        )

    def _render_place(self, place: int, file: bytes, offset: bytes) -> bytes:
        return b',"%s":%s,"%s":%d' % (file, render_file(self._source, place), offset, compute_file_offset(place))


_POSTGRESQL, _OTHER = PostgresFields(), OtherFields()


@lru_cache(maxsize=256)
def choose_fields(source: SourceInfo) -> SourceFields:
    """The fields of a source's kind."""
    if source.kind in OF_BINARY_LOGS:
        return BinlogFields(source)
    return _POSTGRESQL if source.kind == POSTGRESQL else _OTHER
