"""The numbers of parts' stats that are metrics of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily


@dataclass(frozen=True)
class PartStat:
    """A key of a part's stats, and the metric that shows it."""

    kind: Literal["source", "handler", "sink"]
    key: str
    family: type[CounterMetricFamily | GaugeMetricFamily]
    metric: str
    what: str


PART_STATS = (
    PartStat(
        "source",
        "lag_bytes",
        GaugeMetricFamily,
        "lag_bytes",
        "WAL between the stored position and the server's end of WAL, of all tables.",
    ),
    PartStat(
        "source",
        "keys_in_doubt",
        CounterMetricFamily,
        "keys_in_doubt",
        "Cases in which the primary key of rows of a table with REPLICA IDENTITY FULL is not certain.",
    ),
    PartStat(
        "source",
        "cascaded_tables",
        GaugeMetricFamily,
        "cascaded_tables",
        "Tables whose rows foreign keys change without the binary log.",
    ),
    PartStat(
        "source", "lag_records", GaugeMetricFamily, "lag_records", "Records between a group and its topics' ends."
    ),
    PartStat(
        "source", "tombstones", CounterMetricFamily, "source_tombstones", "Records that were read without a value."
    ),
    PartStat(
        "source",
        "tombstone_deletes",
        CounterMetricFamily,
        "source_tombstone_deletes",
        "Records without a value that became deletes.",
    ),
    PartStat(
        "source",
        "unknown_tombstones",
        CounterMetricFamily,
        "source_unknown_tombstones",
        "Records without a value that were left out, because no record says of which table they are.",
    ),
    PartStat(
        "source",
        "headers_left_out",
        CounterMetricFamily,
        "source_headers_left_out",
        "Headers of records that did not go out with their rows.",
    ),
    PartStat(
        "source",
        "dead_lettered",
        CounterMetricFamily,
        "source_dead_lettered",
        "Records that were no events and were put aside.",
    ),
    PartStat(
        "source", "registry_lookups", CounterMetricFamily, "registry_lookups", "Answers of a source's schema registry."
    ),
    PartStat(
        "source",
        "registry_failures",
        CounterMetricFamily,
        "registry_failures",
        "Attempts to ask a source's schema registry that had no answer.",
    ),
    PartStat("source", "rebalances", CounterMetricFamily, "rebalances", "Rebalances that gave or took partitions."),
    PartStat("source", "reconnects", CounterMetricFamily, "reconnects", "Reconnections to the server."),
    PartStat("source", "rows", CounterMetricFamily, "source_rows", "Rows that a source found by polling."),
    PartStat("source", "polls", CounterMetricFamily, "source_polls", "Polls of a source."),
    PartStat(
        "source",
        "unsettled_rows",
        GaugeMetricFamily,
        "unsettled_rows",
        "Rows that were seen and wait for transactions that may have written smaller keys.",
    ),
    PartStat(
        "source",
        "last_row_age_seconds",
        GaugeMetricFamily,
        "last_row_age_seconds",
        "Time since a source last read a row.",
    ),
    PartStat("handler", "rows", CounterMetricFamily, "handler_rows", "Rows that went through the handler's rules."),
    PartStat(
        "handler",
        "passed_unknown",
        CounterMetricFamily,
        "handler_passed_unknown",
        "Rows that a rule could not judge and that passed.",
    ),
    PartStat(
        "handler",
        "unaddressed",
        CounterMetricFamily,
        "handler_unaddressed",
        "Rows that lack values of which a rule makes their topic, key or headers.",
    ),
    PartStat(
        "handler",
        "fields_left_out",
        CounterMetricFamily,
        "handler_fields_left_out",
        "Fields of JSON documents that the type of a rule does not name.",
    ),
    PartStat(
        "handler",
        "nulled",
        CounterMetricFamily,
        "handler_nulled",
        "Values that a rule could not compute and that became null, and conditions that let their rows pass.",
    ),
    PartStat(
        "handler", "dead_lettered", CounterMetricFamily, "handler_dead_lettered", "Rows that a rule could not process."
    ),
    PartStat(
        "handler", "engine_restarts", CounterMetricFamily, "handler_engine_restarts", "Engines that were started again."
    ),
    PartStat(
        "handler",
        "executors",
        GaugeMetricFamily,
        "handler_executors",
        "Executors that a Spark cluster gives at present.",
    ),
    PartStat("sink", "events", CounterMetricFamily, "sink_events", "Events that are durable in the sink."),
    PartStat("sink", "bytes", CounterMetricFamily, "sink_bytes", "Keys and values that are durable in the sink."),
    PartStat("sink", "batches", CounterMetricFamily, "sink_batches", "Micro-batches that are durable in the sink."),
    PartStat("sink", "transactions", CounterMetricFamily, "sink_transactions", "Transactions that are committed."),
    PartStat(
        "sink",
        "transactions_written_again",
        CounterMetricFamily,
        "sink_transactions_written_again",
        "Transactions that were given up and written again.",
    ),
    PartStat("sink", "excluded", CounterMetricFamily, "sink_excluded", "Changes of tables that the sink leaves out."),
    PartStat(
        "sink",
        "uncompressed",
        CounterMetricFamily,
        "sink_uncompressed",
        "Records that were sent as they are, because compressing makes them no smaller.",
    ),
    PartStat(
        "sink",
        "request_bytes",
        GaugeMetricFamily,
        "sink_request_bytes",
        "The most bytes of a request, where a topic takes no larger ones.",
    ),
    PartStat(
        "sink",
        "topics_made_again",
        CounterMetricFamily,
        "sink_topics_made_again",
        "Topics that were deleted and made again since they were last written to.",
    ),
    PartStat("sink", "queue_bytes", GaugeMetricFamily, "queue_bytes", "Memory of the batches that wait for the sink."),
    PartStat("sink", "queue_limit_bytes", GaugeMetricFamily, "queue_limit_bytes", "The limit of queue_bytes."),
    PartStat("sink", "dead_lettered", CounterMetricFamily, "dead_lettered", "Records in the dead-letter topic."),
)
