"""What events call a transaction and a place depends on the kind of the source."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from psql_streamer.events.routing import Router
from psql_streamer.model import POSTGRESQL, SourceInfo
from psql_streamer.testing.batches import mixed_batch
from tests.encoding import encoder_of

OF_POSTGRESQL = {"CommitLSN", "XID", "WALPosition"}


@pytest.mark.parametrize(("kind", "name"), [(POSTGRESQL, "CommitLSN"), ("sqlite", "Commit")])
def test_a_message_outside_of_any_transaction_has_its_commit_number_in_the_words_of_its_source(
    kind: str, name: str
) -> None:
    batch = replace(mixed_batch(), source=SourceInfo(kind, "s", "h", "d"))
    encoder = encoder_of("event", Router({}, {}, "", "t", "m"), {})
    events = [json.loads(value) for value in encoder.encode(batch).values.to_pylist()]
    outside = [event for event in events if event["Action"] == "message"][-1]
    assert outside[name] > 0
    if kind != POSTGRESQL:
        assert not any(event.keys() & OF_POSTGRESQL for event in events)
