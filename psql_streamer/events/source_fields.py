"""What events say of their source, and of the place of a change in it: fields by kind of source.

Changes of PostgreSQL's have its own words (xid, commit_lsn, lsn). Those of any other kind have a commit number, which
increases in the order of the commits, and the transaction's id where the source has one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.events.digits import moments, numbers
from psql_streamer.events.identity import lsn_texts
from psql_streamer.events.json.text import join, name
from psql_streamer.events.per_transaction import Part
from psql_streamer.lsn import Lsn
from psql_streamer.model import POSTGRESQL, SourceInfo, Transactions

Places = NDArray[np.uint64]
Texts = dict[str, pa.Array]

_NULL = pa.scalar(b"null", pa.binary())


class SourceFields(ABC):
    """The fields of one kind of source. Whatever is of a transaction is given for each transaction.

    commit_header: the header that holds a commit number.
    """

    commit_header: ClassVar[str]

    @abstractmethod
    def in_event(self, transactions: Transactions) -> pa.Array:
        """Members of the format `event`, each behind a comma: its time and what names the transaction."""

    @abstractmethod
    def place_in_event(self, places: Places | None) -> Part:
        """Members of `event` for where each change lies."""

    @abstractmethod
    def in_envelope(self, transactions: Transactions) -> pa.Array:
        """Members of `source` in `envelope`."""

    @abstractmethod
    def outside_in_envelope(self, commit: int) -> bytes:
        """The same for a message outside of any transaction."""

    @abstractmethod
    def place_in_envelope(self, places: Places | None) -> Part:
        """Members of `source` in `envelope` for where each change lies."""

    @abstractmethod
    def in_schema_change(self, transactions: Transactions, tx: int) -> dict[str, Any]:
        """What a change of a table's shape says of its transaction."""

    @abstractmethod
    def headers(self, transactions: Transactions, tx: NDArray[np.int32]) -> Texts:
        """Headers that name each change's transaction."""

    @abstractmethod
    def headers_outside(self, commit: int) -> dict[str, str]:
        """The same for a message outside of any transaction."""

    @abstractmethod
    def show_commit(self, commit: int) -> str:
        """A commit number for people."""


class PostgresFields(SourceFields):
    """The commit number is the LSN of the commit, a place the LSN of the change, the id the xid."""

    commit_header = "commit_lsn"

    def in_event(self, transactions: Transactions) -> pa.Array:
        return join(
            b',"Timestamp":"',
            moments(transactions.commit_ts),
            b'Z","XID":',
            transactions.id_texts(),
            b',"CommitLSN":',
            numbers(transactions.commit),
        )

    def place_in_event(self, places: Places | None) -> Part:
        return b"" if places is None else join(b',"WALPosition":', numbers(places))

    def in_envelope(self, transactions: Transactions) -> pa.Array:
        return join(
            b',"ts_ms":',
            numbers(transactions.commit_ts // 1000),
            b',"xid":',
            transactions.id_texts(),
            b',"commit_lsn":"',
            lsn_texts(transactions.commit),
            b'"',
        )

    def outside_in_envelope(self, commit: int) -> bytes:
        return b',"ts_ms":null,"xid":null,"commit_lsn":"%s"' % self.show_commit(commit).encode()

    def place_in_envelope(self, places: Places | None) -> Part:
        return b"" if places is None else join(b',"lsn":"', lsn_texts(places), b'"')

    def in_schema_change(self, transactions: Transactions, tx: int) -> dict[str, Any]:
        return {"xid": int(transactions.id_of(tx) or 0), "commit_lsn": self.show_commit(int(transactions.commit[tx]))}

    def headers(self, transactions: Transactions, tx: NDArray[np.int32]) -> Texts:
        return {self.commit_header: lsn_texts(transactions.commit[tx]), "xid": transactions.ids_of(tx)}

    def headers_outside(self, commit: int) -> dict[str, str]:
        return {self.commit_header: self.show_commit(commit)}

    def show_commit(self, commit: int) -> str:
        return str(Lsn(commit))


class OtherFields(SourceFields):
    """Of every source that has no words of its own here."""

    commit_header = "commit"

    def in_event(self, transactions: Transactions) -> pa.Array:
        return join(
            b',"Timestamp":"',
            moments(transactions.commit_ts),
            b'Z","Transaction":',
            _quoted_ids(transactions),
            b',"Commit":',
            numbers(transactions.commit),
        )

    def place_in_event(self, places: Places | None) -> Part:
        return b"" if places is None else join(b',"Place":', numbers(places))

    def in_envelope(self, transactions: Transactions) -> pa.Array:
        return join(
            b',"ts_ms":',
            numbers(transactions.commit_ts // 1000),
            b',"transaction":',
            _quoted_ids(transactions),
            b',"commit":',
            numbers(transactions.commit),
        )

    def outside_in_envelope(self, commit: int) -> bytes:
        return b',"ts_ms":null,"transaction":null,"commit":%d' % commit

    def place_in_envelope(self, places: Places | None) -> Part:
        return b"" if places is None else join(b',"place":', numbers(places))

    def in_schema_change(self, transactions: Transactions, tx: int) -> dict[str, Any]:
        return {"transaction": transactions.id_of(tx), "commit": int(transactions.commit[tx])}

    def headers(self, transactions: Transactions, tx: NDArray[np.int32]) -> Texts:
        named = {} if transactions.ids is None else {"transaction": transactions.ids_of(tx)}
        return {self.commit_header: numbers(transactions.commit[tx]), **named}

    def headers_outside(self, commit: int) -> dict[str, str]:
        return {self.commit_header: self.show_commit(commit)}

    def show_commit(self, commit: int) -> str:
        return str(commit)


_BY_KIND: dict[str, SourceFields] = {POSTGRESQL: PostgresFields()}
_OTHER = OtherFields()


def fields_of(source: SourceInfo) -> SourceFields:
    """The fields of a source's kind."""
    return _BY_KIND.get(source.kind, _OTHER)


def _quoted_ids(transactions: Transactions) -> pa.Array:
    if transactions.ids is None:
        return pa.repeat(_NULL, len(transactions))
    ids = (transactions.id_of(tx) for tx in range(len(transactions)))
    return pa.array([b"null" if one is None else name(one) for one in ids], pa.binary())
