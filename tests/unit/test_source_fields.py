"""What events call a transaction and a place depends on the kind of the source."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from psql_streamer.events.identity import make_uuid
from psql_streamer.events.routing import Router
from psql_streamer.model import MARIADB, MYSQL, POSTGRESQL, SourceInfo
from psql_streamer.testing.batches import make_mixed_batch
from tests.encoding import encoder_of

OF_POSTGRESQL = {"CommitLSN", "XID", "WALPosition"}


@pytest.mark.parametrize(("kind", "name"), [(POSTGRESQL, "CommitLSN"), ("sqlite", "Commit")])
def test_a_message_outside_of_any_transaction_has_its_commit_number_in_the_words_of_its_source(
    kind: str, name: str
) -> None:
    batch = replace(make_mixed_batch(), source=SourceInfo(kind, "s", "h", "d"))
    encoder = encoder_of("event", Router({}, {}, "", "t", "m"), {})
    events = [json.loads(value) for value in encoder.encode(batch).values.to_pylist()]
    outside = [event for event in events if event["Action"] == "message"][-1]
    assert outside[name] > 0
    if kind != POSTGRESQL:
        assert not any(event.keys() & OF_POSTGRESQL for event in events)


def test_a_change_of_mysql_is_the_same_on_every_host_and_one_of_mariadb_is_not() -> None:
    def uuid(kind: str, host: str, identity: str) -> bytes:
        return make_uuid(SourceInfo(kind, "s", host, "", identity), 5, 0)

    of_mysql = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    assert uuid(MYSQL, "one", of_mysql) == uuid(MYSQL, "other", of_mysql)
    assert uuid(MYSQL, "one", of_mysql) != uuid(MYSQL, "one", of_mysql.replace("3", "4"))
    assert uuid(MARIADB, "one", "0") != uuid(MARIADB, "other", "0")
