"""Dead letters: what becomes of a record that Kafka will never take."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaError

from psql_streamer.model import Lsn
from psql_streamer.records import Records
from sinks.kafka_delivery import Delivery, Headers, Rejections, Rows
from sinks.kafka_errors import REJECTED

PREFIX = "dead_letter_"
"""What the names of our headers begin with; the record's own headers keep theirs."""


def deliver_dead_letters(
    delivery: Delivery, topic: str, records: Records, rows: Rows, rejected: Rejections
) -> Rejections:
    """Write the rejected records to `topic`; returns those that cannot be written there either.

    Key and value are the original bytes. What is too large for `topic` as well is cut, in halves, until it
    fits, and the header dead_letter_truncated_from has its original size.
    """
    letters = {index: _letter(topic, records, rows, index, error) for index, error in rejected.items()}
    refused: dict[int, KafkaError] = {}
    while letters:
        order = list(letters)
        failed = delivery.deliver_singly(_joined(letters[index] for index in order))
        refused |= {order[i]: error for i, error in failed.items() if not _can_shrink(letters[order[i]], error)}
        letters = {order[i]: _halved(letters[order[i]]) for i in failed if order[i] not in refused}
    return refused


def describe(records: Records, rows: Rows, index: int) -> str:
    """Which record it is, without its content."""
    size = len(rows.keys[index] or b"") + len(rows.values[index] or b"")
    return (
        f"a record of {size} bytes from table {records.table_names[records.tables[index]]} "
        f"(commit {Lsn(int(records.commit_lsn[index]))}, change {records.seq[index]})"
    )


def advice(error: KafkaError) -> str:
    """What could be done about a rejection: its cause, or a place for such records."""
    return f"{REJECTED[error.code()]}, or set deadLetterTopic to put such records aside"


def _letter(topic: str, records: Records, rows: Rows, index: int, error: KafkaError) -> Rows:
    about = {
        "reason": error.str(),
        "topic": rows.topics[index],
        "table": records.table_names[records.tables[index]],
        "commit_lsn": str(Lsn(int(records.commit_lsn[index]))),
        "seq": str(records.seq[index]),
    }
    headers: Headers = [] if rows.headers is None else list(rows.headers[index])
    headers += [(PREFIX + name, text.encode()) for name, text in about.items()]
    return Rows([topic], [rows.values[index]], [rows.keys[index]], [-1], [headers])


def _joined(letters: Iterable[Rows]) -> Rows:
    all_of_them = list(letters)
    return Rows(
        [letter.topics[0] for letter in all_of_them],
        [letter.values[0] for letter in all_of_them],
        [letter.keys[0] for letter in all_of_them],
        [letter.partitions[0] for letter in all_of_them],
        [letter.headers[0] for letter in all_of_them if letter.headers],
    )


def _can_shrink(letter: Rows, error: KafkaError) -> bool:
    return error.code() == KafkaError.MSG_SIZE_TOO_LARGE and _size(letter) > 0


def _halved(letter: Rows) -> Rows:
    value, key = letter.values[0], letter.keys[0]
    headers: Headers = list(letter.headers[0]) if letter.headers else []
    name = PREFIX + "truncated_from"
    if all(header != name for header, _ in headers):
        headers.append((name, str(_size(letter)).encode()))
    if len(value or b"") >= len(key or b""):
        value = value and value[: len(value) // 2]
    else:
        key = key and key[: len(key) // 2]
    return Rows(letter.topics, [value], [key], letter.partitions, [headers])


def _size(letter: Rows) -> int:
    return len(letter.values[0] or b"") + len(letter.keys[0] or b"")
