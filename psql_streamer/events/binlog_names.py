"""What events say of transactions and places in a binary log: GTIDs, servers, files and offsets, as JSON by columns."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.events.digits import to_digits
from psql_streamer.events.json.json_text import join, render_name
from psql_streamer.events.per_transaction import Fragment
from psql_streamer.model import MARIADB, SourceInfo, Transactions

_MARIADB_GTID = re.compile(rb"[0-9]+-(0|[1-9][0-9]{0,9})-[0-9]+")
_OFFSET_BITS = np.uint64(32)
_OFFSET = 0xFFFF_FFFF


def render_gtids(source: SourceInfo, transactions: Transactions) -> pa.Array:
    """The GTID of each transaction as JSON; null where it has none, and is called by the place where it begins."""
    ids = transactions.list_id_texts()
    quoted = join(b'"', ids, b'"')
    anonymous = pc.fill_null(pc.starts_with(ids, f"{source.log_name}."), True)
    return pc.if_else(anonymous, pa.scalar(b"null", pa.binary()), quoted)


def find_gtid(source: SourceInfo, transactions: Transactions, tx: int) -> str | None:
    """The GTID of one transaction."""
    found = transactions.find_id(tx)
    return None if found is None or found.startswith(f"{source.log_name}.") else found


def render_server_ids(source: SourceInfo, transactions: Transactions) -> pa.Array:
    """The id of the server that each transaction was made on: MariaDB's GTIDs have it, domain-server-number."""
    if source.kind != MARIADB:
        return pa.array([b"%d" % source.server_id] * len(transactions), pa.binary())
    own = b"%d" % source.server_id  # of what has no GTID, as rows of a snapshot
    found = (_MARIADB_GTID.fullmatch(gtid or b"") for gtid in transactions.list_id_texts().to_pylist())
    return pa.array([own if gtid is None else gtid[1] for gtid in found], pa.binary())


def render_server_members(
    source: SourceInfo, transactions: Transactions, server_id: bytes, thread: bytes
) -> list[Fragment]:
    """Members for the server and the session that made each transaction; nothing for what is not known.

    server_id, thread: what they are called.
    """
    servers = _render_member(server_id, render_server_ids(source, transactions))
    if transactions.threads is None:
        return [servers]
    return [servers, _render_member(thread, to_digits(transactions.threads))]


def render_files(source: SourceInfo, places: NDArray[np.uint64]) -> pa.Array:
    """The names of the files that places lie in, as JSON."""
    numbers, at = np.unique(places >> _OFFSET_BITS, return_inverse=True)
    return pa.array([_render_file_name(source, number) for number in numbers.tolist()], pa.binary()).take(pa.array(at))


def render_file(source: SourceInfo, place: int) -> bytes:
    """The same of one place."""
    return _render_file_name(source, place >> 32)


def compute_file_offsets(places: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Where in their files places lie, in bytes."""
    return places & np.uint64(_OFFSET)


def compute_file_offset(place: int) -> int:
    """The same of one place."""
    return place & _OFFSET


def _render_member(called: bytes, digits: pa.Array) -> pa.Array:
    """No server and no session has the number 0."""
    return pc.if_else(pc.equal(digits, b"0"), pa.scalar(b"", pa.binary()), join(b',"%s":' % called, digits))


def _render_file_name(source: SourceInfo, number: int) -> bytes:
    """The servers write numbers with six digits, greater ones with more."""
    return render_name(f"{source.log_name}.{number:06d}")
