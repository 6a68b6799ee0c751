"""What must be true of topics in the `event` format, whatever happened on the way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from tests.database import Database
from tests.fold import Row, commit_of, fold_events, parse, select
from tests.kafka_reader import Record

Identity = tuple[int, int]


def assert_nothing_is_lost(records: Sequence[Record], database: Database, tables: Sequence[str]) -> None:
    """The folded topics equal the tables, repeats equal what they repeat, and transactions have no gaps."""
    assert_tables(records, {table: select(database, table) for table in tables})


def assert_tables(records: Sequence[Record], tables: Mapping[str, Mapping[str, Row]]) -> None:
    """The same; tables: what they hold, by key."""
    folded = fold_events(records)
    for table, rows in tables.items():
        assert folded.get(table, {}) == rows, f"{table} differs"
    seqs: dict[int, set[int]] = defaultdict(set)
    for event in map(parse, records):
        seqs[commit_of(event)].add(event["Seq"])
    torn = {commit_lsn for commit_lsn, found in seqs.items() if len(found) != max(found) + 1}
    assert not torn, f"{len(torn)} of {len(seqs)} transactions came with gaps"


def assert_order_per_key(records: Sequence[Record]) -> None:
    """In its partition, a key's changes come first in commit order; after repeats, its last state comes last."""
    places: dict[tuple[str, bytes], set[int]] = defaultdict(set)
    seen: dict[tuple[str, bytes], list[Identity]] = defaultdict(list)
    for record in sorted(records, key=lambda record: (record.topic, record.partition, record.offset)):
        if record.key is not None:
            key = (record.topic, record.key)
            places[key].add(record.partition)
            seen[key].append(_identity(parse(record)))
    assert all(len(partitions) == 1 for partitions in places.values()), "a key lies in several partitions"
    for key, identities in seen.items():
        assert identities[-1] == max(identities), f"the last event of {key} is not its last state"
        first_seen = list(dict.fromkeys(identities))
        assert first_seen == sorted(first_seen), f"the changes of {key} came in another order than they were committed"


def assert_repeats_are_the_same(records: Sequence[Record]) -> None:
    """A change that was sent again has the identity that it had, and everything else too."""
    values: dict[str, set[bytes | None]] = defaultdict(set)
    identities: dict[tuple[Identity, bytes | None, str], set[str]] = defaultdict(set)
    for record in records:
        event = parse(record)
        values[event["UUID"]].add(record.value)
        identities[_identity(event), record.key, event["Action"]].add(event["UUID"])
    assert max(map(len, values.values())) == 1, "a repeat differs from what it repeats"
    assert max(map(len, identities.values())) == 1, "a repeat has another UUID"


def distinct_transactions(records: Sequence[Record]) -> int:
    """How many transactions the events come from."""
    return len({commit_of(parse(record)) for record in records})


def repeats(records: Sequence[Record]) -> int:
    """How many records say what another one says."""
    return len(records) - len({(record.topic, record.key, record.value) for record in records})


def _identity(event: dict[str, Any]) -> Identity:
    return commit_of(event), event["Seq"]
