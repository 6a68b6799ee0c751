"""What a Kafka source says of records behind a transaction that stays open."""

from __future__ import annotations

from sources.kafka.offsets import Partition
from sources.kafka.open_transactions import OpenTransactions

A, B = Partition("orders", 0), Partition("orders", 1)


def test_records_behind_a_transaction_that_is_open_for_a_minute_are_said() -> None:
    transactions = OpenTransactions()
    ends, last, reached = {A: 5, B: 7}, {A: 9, B: 7}, {A: 5, B: 7}
    transactions.note_ends(100.0, ends, last, reached)
    transactions.note_ends(159.0, ends, last, reached)
    assert transactions.describe() == ""
    transactions.note_ends(160.0, ends, {A: 12, B: 7}, reached)
    said = "7 records of orders[0] wait for a transaction that has been open for 60 s: look at who writes the topic"
    assert transactions.describe() == said
    transactions.note_ends(165.0, {A: 12, B: 7}, {A: 12, B: 7}, {A: 12, B: 7})
    assert transactions.describe() == ""


def test_transactions_that_follow_each_other_are_not_said() -> None:
    transactions = OpenTransactions()
    for step in range(100):
        transactions.note_ends(100.0 + 5 * step, {A: 5 + step}, {A: 9 + step}, {A: 5 + step})
        assert transactions.describe() == ""


def test_nothing_is_said_of_a_transaction_that_the_source_has_not_come_to() -> None:
    transactions = OpenTransactions()
    for now in (100.0, 200.0):
        transactions.note_ends(now, {A: 5}, {A: 9}, {A: 3})
        assert transactions.describe() == ""


def test_a_partition_that_went_away_is_not_said_any_more() -> None:
    transactions = OpenTransactions()
    for now in (100.0, 200.0):
        transactions.note_ends(now, {A: 5}, {A: 9}, {A: 5})
    assert transactions.describe()
    transactions.note_ends(205.0, {}, {}, {})
    assert transactions.describe() == ""
