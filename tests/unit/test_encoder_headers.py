"""`headers = true`: the identity of what has no row, too."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from psql_streamer.events.assembling import HEADERS
from psql_streamer.events.routing import Router
from psql_streamer.lsn import Lsn
from psql_streamer.model import (
    OUTSIDE,
    POSTGRESQL,
    Batch,
    LogicalMessage,
    ReplicaIdentity,
    SourceInfo,
    Transactions,
    Truncate,
)
from psql_streamer.pgoutput.wal_position import WalPosition
from tests.columns import postgres_column, postgres_table
from tests.encoding import encoder_of
from tests.few import both_ways  # noqa: F401 - a fixture for all tests here

_ORDERS = postgres_table(1, "public", "orders", ReplicaIdentity.DEFAULT, (postgres_column("id", 23, key=True),))
_COMMIT = 0x16B374D848


def _batch() -> Batch:
    return Batch(
        SourceInfo(POSTGRESQL, "db1", "localhost", "shop"),
        WalPosition(Lsn(_COMMIT + 8)).position,
        Transactions(np.array([_COMMIT], np.uint64), np.array([0], np.int64), pa.array([b"757"])),
        truncates=(Truncate(_ORDERS, 0, 0, _COMMIT - 64, 0, cascade=False, restart_identity=False),),
        messages=(
            LogicalMessage("audit", b"in the transaction", 1, 1, _COMMIT - 32, 0),
            LogicalMessage("audit", b"on its own", 2, OUTSIDE, _COMMIT + 8, -1),
        ),
    )


def _headers(wanted: bool) -> list[dict[str, str]]:
    records = encoder_of("event", Router({}, "shop", "", "messages"), {}, wanted).encode(_batch())
    assert len(records) == 3
    return [
        {name: column[row].as_py().decode() for name, column in records.headers.items() if column[row].is_valid}
        for row in range(3)
    ]


@pytest.mark.behaviour("D10", "D11")
def test_truncates_and_messages_carry_their_identity_as_headers() -> None:
    truncate, message, alone = _headers(wanted=True)
    identity = {"commit_lsn": "16/B374D848", "xid": "757"}
    assert truncate == {**identity, "seq": "0", "op": "truncate", "schema": "public", "table": "orders"}
    assert message == {**identity, "seq": "1", "op": "message"}
    assert alone == {"commit_lsn": "16/B374D850", "seq": "-1", "op": "message"}
    assert truncate.keys() <= set(HEADERS)


def test_nothing_has_headers_unless_they_are_wanted() -> None:
    assert _headers(wanted=False) == [{}, {}, {}]
