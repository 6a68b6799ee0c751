"""One table in two topics on a real broker, in each with its own key."""

from __future__ import annotations

import json

from sinks.kafka.sink import KafkaSink
from tests.decoding import decode
from tests.kafka_reader import consume
from tests.kafka_sinks import create_topic, options
from tests.pgoutput_wire import WireColumn, WireRelation, begin, commit, copy_data, insert, relation, update, xlog_data

ORDERS = WireRelation(
    16400, "public", "orders", (WireColumn("id", 23, key=True), WireColumn("customer_id", 23), WireColumn("note"))
)


def test_a_table_is_in_each_of_its_topics_under_that_topics_key(kafka: str, topic_prefix: str) -> None:
    by_id = create_topic(kafka, f"{topic_prefix}.orders", partitions=3)
    by_customer = create_topic(kafka, f"{topic_prefix}.by-customer", partitions=3)
    mapping = {"orders": [f"{topic_prefix}.{{table}}", {"topic": by_customer, "key": ["customer_id"]}]}
    sink = KafkaSink("kafka1", options(kafka, tableTopicMapping=mapping, format="flat"))
    rows = [(b"%d" % i, b"%d" % (i % 7), b"x") for i in range(100)]
    changes = [insert(ORDERS.oid, row) for row in rows]
    changes += [update(ORDERS.oid, (i, customer, b"y")) for i, customer, _ in rows]
    messages = [begin(100, 0, 7), relation(ORDERS), *changes, commit(100, 120, 0)]
    (batch,) = decode([copy_data(xlog_data(message, 50)) for message in messages], len(messages))

    sink.start()
    try:
        sink.write(batch)
        assert sink.stats()["events"] == 400
    finally:
        sink.stop()

    for topic, key in ((by_id, "id"), (by_customer, "customer_id")):
        found = [(json.loads(r.key or b""), json.loads(r.value or b"")) for r in consume(kafka, [topic])]
        assert all(k == {key: row[key]} for k, row in found)
        for note in "xy":
            assert sorted(row["id"] for _, row in found if row["note"] == note) == list(range(100))
        for number in {row[key] for _, row in found}:
            told = [(row["id"], row["note"]) for k, row in found if k == {key: number}]
            assert told == sorted(told, key=lambda one: (one[1], one[0])), "out of order"
