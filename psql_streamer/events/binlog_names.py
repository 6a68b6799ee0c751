"""What events say of transactions and places in a binary log: GTIDs, files and offsets, as JSON by columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.events.json.text import join, name
from psql_streamer.model import MARIADB, SourceInfo, Transactions

_OFFSET_BITS = np.uint64(32)
_OFFSET = 0xFFFF_FFFF


def gtids(source: SourceInfo, transactions: Transactions) -> pa.Array:
    """The GTID of each transaction as JSON; null where it has none, and is called by the place where it begins."""
    ids = transactions.id_texts()
    quoted = join(b'"', ids, b'"')
    anonymous = pc.fill_null(pc.starts_with(ids, f"{source.log_name}."), True)
    return pc.if_else(anonymous, pa.scalar(b"null", pa.binary()), quoted)


def gtid_of(source: SourceInfo, transactions: Transactions, tx: int) -> str | None:
    """The GTID of one transaction."""
    found = transactions.id_of(tx)
    return None if found is None or found.startswith(f"{source.log_name}.") else found


def server_ids(source: SourceInfo, transactions: Transactions) -> pa.Array:
    """The id of the server that each transaction was made on: MariaDB's GTIDs have it, domain-server-number."""
    if source.kind != MARIADB:
        return pa.array([b"%d" % source.server_id] * len(transactions), pa.binary())
    own = b"%d" % source.server_id  # of rows of a snapshot, which are of no transaction
    ids = transactions.id_texts().to_pylist()
    return pa.array([own if gtid is None else gtid.split(b"-")[1] for gtid in ids], pa.binary())


def files(source: SourceInfo, places: NDArray[np.uint64]) -> pa.Array:
    """The names of the files that places lie in, as JSON."""
    numbers, at = np.unique(places >> _OFFSET_BITS, return_inverse=True)
    return pa.array([_file(source, number) for number in numbers.tolist()], pa.binary()).take(pa.array(at))


def file_of(source: SourceInfo, place: int) -> bytes:
    """The same of one place."""
    return _file(source, place >> 32)


def file_offsets(places: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Where in their files places lie, in bytes."""
    return places & np.uint64(_OFFSET)


def file_offset(place: int) -> int:
    """The same of one place."""
    return place & _OFFSET


def _file(source: SourceInfo, number: int) -> bytes:
    """The servers write numbers with six digits, greater ones with more."""
    return name(f"{source.log_name}.{number:06d}")
