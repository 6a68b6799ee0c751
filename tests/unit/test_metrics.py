"""What the pipeline and the parts report is what Prometheus reads, under names that its linter accepts."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families

from psql_streamer.errors import SinkUnavailable
from psql_streamer.interfaces import Handler, Sink, Source, Status
from psql_streamer.lsn import Lsn
from psql_streamer.metrics.metrics import Metrics
from psql_streamer.metrics.reserved_stats import RESERVED_STATS
from psql_streamer.model import (
    NO_TRANSACTIONS,
    POSTGRESQL,
    Batch,
    Changes,
    Image,
    LogicalMessage,
    Relation,
    ReplicaIdentity,
    RowOp,
    SourceInfo,
    Stats,
    Transactions,
    Truncate,
)
from psql_streamer.name_counts import MOST_PREFIXES, OTHERS
from psql_streamer.pgoutput.wal_position import WalPosition
from psql_streamer.pipeline.snapshots import SnapshotsOfSources
from tests.columns import postgres_table

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
NOBODY = Image((), np.zeros(0, dtype=np.int64))


class Running:
    """A service that says what it is told to say."""

    snapshots = SnapshotsOfSources({}, [])

    def __init__(self, status: Mapping[str, Status], stats: Mapping[str, Stats]) -> None:
        self._status = status
        self._stats = stats

    def status(self) -> Mapping[str, Status]:
        return self._status

    def stats(self) -> Mapping[str, Stats]:
        return self._stats

    def set_debug(self, on: bool) -> None:
        raise AssertionError(f"a scrape switched debug to {on}")


HEALTHY = Running(
    {
        "source.db1": Status(True, "streaming"),
        "sink.kafka1": Status(False, "no broker answers"),
        "store": Status(True, ""),
    },
    {
        "source.db2": {
            "rows": 9,
            "polls": 4,
            "unsettled_rows": 2,
            "last_row_age_seconds": 1.5,
            "cursors": {"public.orders": 17, "public.visits": ["a", 1]},
        },
        "source.hub": {
            "partitions": {"orders[0]": 12, "a[1]b[10]": 0},
            "headers_left_out": 4,
            "tombstones": 9,
            "tombstone_deletes": 2,
            "unknown_tombstones": 1,
        },
        "source.db1": {"received_lsn": 300, "stored_lsn": 200, "confirmed_lsn": 100, "lag_bytes": 200, "reconnects": 2},
        "handler.spark": {
            "batches": 3,
            "rows": 60,
            "passed_unknown": 2,
            "unaddressed": 3,
            "fields_left_out": 5,
            "dead_lettered": 4,
            "engine_restarts": 1,
            "executors": 2,
        },
        "sink.kafka1": {
            "events": 7,
            "bytes": 700,
            "batches": 3,
            "dead_lettered": 1,
            "queue_bytes": 20,
            "queue_limit_bytes": 64,
            "skipped": {"public.audit": 4, "public.log": 5},
            "nulled": {"public.orders.at": 3},
        },
        "sink.plain": {"events": 9, "skipped": 6},
        "store": {"entries": 1},
    },
)


def relation(table: str) -> Relation:
    return postgres_table(1, "public", table, ReplicaIdentity.DEFAULT, ())


def image(rows: Sequence[int], *columns: Sequence[bytes | None]) -> Image:
    return Image(tuple(pa.array(column, pa.binary()) for column in columns), np.array(rows, dtype=np.int64))


def changes(table: str, ops: Sequence[RowOp], after: Image = NOBODY, before: Image = NOBODY) -> Changes:
    each = np.arange(len(ops))
    return Changes(
        relation(table),
        (),
        batch_order=each,
        op=np.array(ops, dtype=np.uint8),
        seq=each,
        place=each.astype(np.uint64),
        tx=np.zeros(len(ops), dtype=np.int32),
        table_seq=each,
        after=after,
        before=before,
    )


def batch(*content: Changes, lsn: int = 100, committed: float | None = None) -> Batch:
    commit_ts = np.array([] if committed is None else [committed * 1e6], dtype=np.int64)
    return Batch(
        SourceInfo(POSTGRESQL, "db1", "localhost", "shop"),
        WalPosition(Lsn(lsn)).position,
        Transactions(np.zeros(len(commit_ts), np.uint64), commit_ts),
        content,
    )


def receive(metrics: Metrics, given: Batch, batch_number: int = 1) -> None:
    metrics.count_batch("db1", given, batch_number)


def samples(metrics: Metrics) -> dict[str, dict[tuple[str, ...], float]]:
    """name -> label values, in the order of their label names -> value."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            labels = tuple(sample.labels[name] for name in sorted(sample.labels))
            series = found.setdefault(sample.name.removeprefix("psql_streamer_"), {})
            assert labels not in series, f"{sample.name}{labels} is there twice"
            series[labels] = sample.value
    return found


def test_changes_are_counted_by_table_and_action() -> None:
    metrics = Metrics()
    inserts = changes("orders", [RowOp.INSERT] * 3, image([0, 1, 2], [b"1", b"2", b"3"]))
    mixed = changes(
        "customers", [RowOp.INSERT, RowOp.DELETE, RowOp.INSERT], image([0, 2], [b"1", b"2"]), image([1], [b"1"])
    )
    receive(metrics, batch(inserts, mixed))
    receive(metrics, batch(inserts))
    assert samples(metrics)["events_total"] == {
        ("insert", "public", "db1", "orders"): 6,
        ("insert", "public", "db1", "customers"): 2,
        ("delete", "public", "db1", "customers"): 1,
    }


def test_truncates_and_messages_are_counted() -> None:
    metrics = Metrics()
    empty = batch()
    receive(
        metrics,
        Batch(
            empty.source,
            empty.position,
            empty.transactions,
            truncates=(Truncate(relation("orders"), 0, 0, 1, 0, cascade=False, restart_identity=False),),
            messages=(LogicalMessage("audit", b"hello", 1, 1, 1, 0),),
        ),
    )
    found = samples(metrics)
    assert found["events_total"] == {
        ("truncate", "public", "db1", "orders"): 1,
        ("message", "", "db1", "audit"): 1,
    }
    assert found["event_bytes_total"][("message", "", "db1", "audit")] == 5


def test_bytes_are_those_of_the_values_of_both_images() -> None:
    metrics = Metrics()
    receive(
        metrics,
        batch(
            changes("orders", [RowOp.INSERT, RowOp.INSERT], image([0, 1], [b"1", b"22"], [None, b"four"])),
            changes(
                "customers",
                [RowOp.UPDATE, RowOp.DELETE, RowOp.INSERT],
                image([0, 2], [b"1", b"333"], [b"Ann", None]),
                image([0, 1], [b"2", b"1"], [None, b"Bob"]),
            ),
        ),
    )
    assert samples(metrics)["event_bytes_total"] == {
        ("insert", "public", "db1", "orders"): 7,
        ("update", "public", "db1", "customers"): 5,
        ("delete", "public", "db1", "customers"): 4,
        ("insert", "public", "db1", "customers"): 3,
    }


@pytest.mark.parametrize("ops", [[RowOp.INSERT] * 2, [RowOp.INSERT, RowOp.UPDATE]])
def test_bytes_of_a_sliced_column_are_those_of_the_slice(ops: list[RowOp]) -> None:
    metrics = Metrics()
    column = pa.array([b"before", b"1", b"22", b"behind"], pa.binary()).slice(1, 2)
    receive(metrics, batch(changes("orders", ops, Image((column,), np.array([0, 1])))))
    assert sum(samples(metrics)["event_bytes_total"].values()) == 3


def test_a_batch_without_rows_counts_as_no_batch() -> None:
    metrics = Metrics()
    receive(metrics, batch(lsn=200))
    assert "batch_rows_count" not in samples(metrics)
    receive(metrics, batch(changes("orders", [RowOp.DELETE] * 30)))
    found = samples(metrics)
    assert found["batch_rows_count"] == {("db1",): 1}
    assert found["batch_rows_sum"] == {("db1",): 30}


def test_lag_in_seconds_is_the_age_of_the_oldest_change_that_is_not_stored() -> None:
    metrics = Metrics()
    now = time.time()
    row = changes("orders", [RowOp.DELETE])
    receive(metrics, batch(row, committed=now - 500), batch_number=1)
    receive(metrics, batch(row, committed=now - 50), batch_number=2)
    assert samples(metrics)["lag_seconds"][("db1",)] == pytest.approx(500, abs=20)
    metrics.note_stored("db1", 1)
    assert samples(metrics)["lag_seconds"][("db1",)] == pytest.approx(50, abs=20)
    metrics.note_stored("db1", 2)
    assert samples(metrics)["lag_seconds"][("db1",)] == 0


def test_an_empty_batch_behind_one_that_waits_makes_no_lag_disappear() -> None:
    metrics = Metrics()
    waiting = batch(changes("orders", [RowOp.DELETE]), committed=time.time() - 500)
    none = NO_TRANSACTIONS
    receive(metrics, waiting, batch_number=1)
    receive(metrics, Batch(waiting.source, waiting.position, none), batch_number=2)
    assert samples(metrics)["lag_seconds"][("db1",)] > 400


def test_a_server_whose_clock_is_ahead_gives_no_negative_lag() -> None:
    metrics = Metrics()
    receive(metrics, batch(changes("orders", [RowOp.DELETE]), committed=time.time() + 3600))
    assert samples(metrics)["lag_seconds"][("db1",)] == 0


def test_parts_are_read_at_every_scrape() -> None:
    metrics = Metrics()
    metrics.watch(HEALTHY)
    found = samples(metrics)
    assert found["position_lsn"] == {("received", "db1"): 300, ("stored", "db1"): 200, ("confirmed", "db1"): 100}
    assert found["lag_bytes"] == {("db1",): 200}
    assert found["partition_lag_records"] == {("0", "hub", "orders"): 12, ("10", "hub", "a[1]b"): 0}
    of_topics = {"headers_left_out": 4, "tombstones": 9, "tombstone_deletes": 2, "unknown_tombstones": 1}
    for key, value in of_topics.items():
        assert found[f"source_{key}_total"] == {("hub",): value}
    assert found["reconnects_total"] == {("db1",): 2}
    assert found["sink_events_total"] == {("kafka1",): 7, ("plain",): 9}
    assert found["sink_bytes_total"] == {("kafka1",): 700}
    assert found["sink_batches_total"] == {("kafka1",): 3}
    assert found["dead_lettered_total"] == {("kafka1",): 1}
    assert found["sink_nulled_total"] == {("public.orders.at", "kafka1"): 3}
    of_handlers = {"rows": 60, "passed_unknown": 2, "unaddressed": 3, "fields_left_out": 5, "dead_lettered": 4}
    of_handlers |= {"engine_restarts": 1}
    for key, value in of_handlers.items():
        assert found[f"handler_{key}_total"] == {("spark",): value}
    assert found["handler_executors"] == {("spark",): 2}
    assert found["queue_bytes"] == {("kafka1",): 20}
    assert found["queue_limit_bytes"] == {("kafka1",): 64}
    assert found["sink_skipped_total"] == {
        ("kafka1", "public.audit"): 4,
        ("kafka1", "public.log"): 5,
        ("plain", ""): 6,
    }
    assert found["up"] == {("source.db1",): 1, ("sink.kafka1",): 0, ("store",): 1}


STRANGE = {
    "source.own": {
        "partitions": 4,
        "cursors": "9",
        "rows": "many",
        "lag_bytes": None,
        "server_lsn": "0/1",
        "polls": 10**400,
        "reconnects": 3,
    },
    "source.other": {"partitions": {"a[0]": "far", 7: 1, "b[1]": 2}, "cursors": {"orders": 10**400, 7: 1, "visits": 3}},
    "handler.own": {"lookups": 3, "rows": 5},
    "handler.other": {"lookups": {"a": 4, "b": {"rows": "all", "bytes": 9}}},
    "sink.own": {"events": ["a", "b"], "skipped": "some", "nulled": {"column": "x", "other": 1}},
}


def test_values_of_another_type_are_left_out_and_the_rest_is_shown() -> None:
    metrics = Metrics()
    metrics.watch(Running({}, STRANGE))
    found = samples(metrics)
    assert found["reconnects_total"] == {("own",): 3}
    assert found["partition_lag_records"] == {("1", "other", "b"): 2}
    assert found["cursor"] == {("other", "visits"): 3}
    assert found["handler_rows_total"] == {("own",): 5}
    assert found["lookup_bytes"] == {("other", "b"): 9}
    assert found["sink_nulled_total"] == {("other", "own"): 1}
    for name in ("source_rows_total", "source_polls_total", "position_lsn", "sink_events_total", "sink_skipped_total"):
        assert name not in found


@pytest.mark.parametrize(("kind", "part"), [("source", Source), ("handler", Handler), ("sink", Sink)])
def test_the_contract_names_every_key_of_stats_that_metrics_read(kind: str, part: type[Any]) -> None:
    described = set(re.findall(r"\w+", part.stats.__doc__ or ""))
    assert set(RESERVED_STATS[kind]) <= described


def test_a_source_that_never_connected_has_no_positions() -> None:
    metrics = Metrics()
    metrics.watch(Running({}, {"source.db1": {"received_lsn": None, "confirmed_lsn": None, "lag_bytes": None}}))
    found = samples(metrics)
    assert "position_lsn" not in found
    assert "lag_bytes" not in found


def test_stages_retries_and_errors_are_shown() -> None:
    metrics = Metrics()
    metrics.observe_stage("handle", "handler.spark", 0.2)
    metrics.observe_stage("handle", "handler.spark", 0.4)
    metrics.count_retry("sink.kafka1")
    metrics.count_error("sink.kafka1", SinkUnavailable("no broker answers"))
    found = samples(metrics)
    assert found["stage_seconds_sum"] == {("handler.spark", "handle"): pytest.approx(0.6)}
    assert found["stage_seconds_count"] == {("handler.spark", "handle"): 2}
    assert found["retries_total"] == {("sink.kafka1",): 1}
    assert found["errors_total"] == {("SinkUnavailable", "sink.kafka1"): 1}
    assert list(found["build_info"].values()) == [1]


def test_names_with_quotes_and_line_ends_survive() -> None:
    metrics = Metrics()
    receive(metrics, batch(changes('a "b"\\c\nd', [RowOp.DELETE])))
    assert list(samples(metrics)["events_total"]) == [("delete", "public", "db1", 'a "b"\\c\nd')]


def test_nothing_is_lost_when_several_threads_count_and_one_scrapes() -> None:
    metrics = Metrics()
    rows = batch(changes("orders", [RowOp.DELETE] * 10), changes("customers", [RowOp.DELETE]))
    done = threading.Event()

    def count() -> None:
        for _ in range(500):
            receive(metrics, rows)
            metrics.observe_stage("write", "sink.kafka1", 0.1)

    def scrape() -> None:
        while not done.is_set():
            metrics.render()

    scraper = threading.Thread(target=scrape)
    counters = [threading.Thread(target=count) for _ in range(4)]
    for thread in (scraper, *counters):
        thread.start()
    for thread in counters:
        thread.join()
    done.set()
    scraper.join()
    found = samples(metrics)
    assert found["events_total"][("delete", "public", "db1", "orders")] == 20_000
    assert found["stage_seconds_count"] == {("sink.kafka1", "write"): 2_000}


def test_tables_beyond_the_bound_are_counted_together() -> None:
    metrics = Metrics(most_tables=3)
    one = image([0], [b"12345678"])
    for number in (1, 2, 1, 3, 4, 5, 1):
        receive(metrics, batch(changes(f"table_{number}", [RowOp.INSERT], one)))
    counted = samples(metrics)["events_total"]
    assert {labels[3]: (labels[1], value) for labels, value in counted.items()} == {
        "table_1": ("public", 3),
        "table_2": ("public", 1),
        "table_3": ("public", 1),
        OTHERS: ("", 2),
    }
    skipped = {f"public.t{number}": 1 for number in range(10)}
    metrics.watch(Running({}, {"sink.k": {"skipped": skipped}}))
    found = samples(metrics)["sink_skipped_total"]
    assert found == {("k", "public.t0"): 1, ("k", "public.t1"): 1, ("k", "public.t2"): 1, ("k", OTHERS): 7}


def test_prefixes_of_messages_are_bounded_in_number_and_length_and_take_no_tables_place() -> None:
    metrics = Metrics(most_tables=200)
    messages = [LogicalMessage(f"request {number} " + "x" * 10_000, b"1", number, 0, 50, 0) for number in range(5000)]
    receive(metrics, replace(batch(), messages=tuple(messages)))
    receive(metrics, batch(changes("orders", [RowOp.INSERT], image([0], [b"1"]))))
    counted = samples(metrics)["events_total"]
    prefixes = {labels[3]: value for labels, value in counted.items() if labels[0] == "message"}
    assert sum(prefixes.values()) == 5000
    assert len(prefixes) == MOST_PREFIXES + 1
    assert prefixes[OTHERS] == 5000 - MOST_PREFIXES
    assert max(map(len, prefixes)) < 100
    assert counted["insert", "public", "db1", "orders"] == 1


def test_counters_are_there_before_there_is_something_to_count() -> None:
    metrics = Metrics()
    metrics.expect(["source.db1", "handler.spark", "sink.k"])
    found = samples(metrics)
    assert found["retries_total"] == {("source.db1",): 0, ("handler.spark",): 0, ("sink.k",): 0}
    assert found["errors_total"] == {
        ("SourceUnavailable", "source.db1"): 0,
        ("HandlerUnavailable", "handler.spark"): 0,
        ("SinkUnavailable", "sink.k"): 0,
    }
    assert found["batch_rows_count"] == {("db1",): 0}
    assert found["lag_seconds"] == {("db1",): 0}


def test_ten_thousand_tables_are_nothing_special() -> None:
    metrics = Metrics(most_tables=10_000)
    one = image([0], [b"12345678"], [b"12345678"])
    wide = batch(*(changes(f"table_{number}", [RowOp.INSERT], one) for number in range(10_000)))
    receive(metrics, wide)
    began = time.process_time()
    receive(metrics, wide)
    counted = time.process_time() - began
    began = time.process_time()
    text = metrics.render()
    rendered = time.process_time() - began
    assert text.count(b"\npsql_streamer_events_total{") == 10_000
    # Ten times what it takes on a slow machine: they catch a cost that grows with the square of the tables.
    assert counted < 3
    assert rendered < 5


def everything() -> str:
    """Every metric with at least one series."""
    metrics = Metrics()
    metrics.watch(HEALTHY)
    orders = changes("orders", [RowOp.INSERT, RowOp.DELETE], image([0], [b"1"]), image([1], [b"1"]))
    receive(metrics, batch(orders, committed=time.time()))
    metrics.note_stored("db1", 1)
    for stage in ("decode", "handle", "write", "store"):
        metrics.observe_stage(stage, "sink.kafka1", 0.01)
    metrics.count_retry("sink.kafka1")
    metrics.count_error("sink.kafka1", SinkUnavailable("no broker answers"))
    return metrics.render().decode()


# The rules of promtool's linter (prometheus/client_golang, testutil/promlint), written anew.
NOT_BASE_UNITS = re.compile(
    r"_(?:(?:nano|micro|milli|centi|kilo|mega|giga|tera|kibi|mebi|gibi)?(?:minutes?|hours?|days?|weeks?|bits?|grams?|fahrenheit)"
    r"|(?:nano|micro|milli|centi|kilo|mega|giga|tera|kibi|mebi|gibi)(?:seconds?|bytes?|meters?|metres?))(?:_|$)"
)
ABBREVIATED_UNITS = re.compile(r"_(?:s|ms|us|ns|sec|b|kb|mb|gb|tb|pb|m|h|d)(?:_|$)")
TYPES_IN_NAMES = re.compile(r"_(?:gauge|counter|summary|histogram|untyped)(?:_|$)")


def lint(text: str) -> list[str]:
    """What is wrong with an exposition, a line each."""
    problems: list[str] = []
    described = re.findall(r"^# (HELP|TYPE) (\S+)", text, re.MULTILINE)
    problems += [f"{name}: two {kind} lines" for kind, name in described if described.count((kind, name)) > 1]
    series = re.findall(r"^([^#\s].*) \S+$", text, re.MULTILINE)
    problems += [f"{one}: twice" for one in series if series.count(one) > 1]
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    helps = dict(re.findall(r"^# HELP (\S+) (.+)$", text, re.MULTILINE))
    for one in series:
        name = one.partition("{")[0]
        if name not in types and re.sub(r"_(bucket|sum|count)$", "", name) not in types:
            problems.append(f"{name}: no TYPE")
    for name, kind in types.items():
        problems += _lint_name(name, kind)
        if not helps.get(name):
            problems.append(f"{name}: no HELP")
        if kind != "histogram" and re.search(rf"^{name}{{.*\ble=", text, re.MULTILINE):
            problems.append(f"{name}: the label le is a histogram's")
    return problems


def _lint_name(name: str, kind: str) -> list[str]:
    rules = {
        "a counter ends in _total": kind == "counter" and not name.endswith("_total"),
        "only a counter ends in _total": kind != "counter" and name.endswith("_total"),
        "only a histogram has such a suffix": name.endswith(("_bucket", "_sum", "_count")),
        "not a base unit": NOT_BASE_UNITS.search(name),
        "an abbreviated unit": ABBREVIATED_UNITS.search(name),
        "its type is in its name": TYPES_IN_NAMES.search(name),
        "not snake_case": not re.fullmatch(r"[a-z][a-z0-9_]*", name),
        "not ours and not the client library's": not name.startswith(("psql_streamer_", "process_", "python_")),
    }
    return [f"{name}: {rule}" for rule, broken in rules.items() if broken]


def test_every_metric_passes_the_lint() -> None:
    assert lint(everything()) == []


def test_every_metric_is_documented() -> None:
    documented = set(re.findall(r"^\| `(psql_streamer_\w+)", OPERATIONS.read_text(), re.MULTILINE))
    assert documented == {
        name for name in re.findall(r"^# TYPE (\S+)", everything(), re.MULTILINE) if name.startswith("psql_streamer_")
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("# HELP a_total A.\n# TYPE a_total gauge\na_total 1\n", "only a counter"),
        ("# HELP psql_streamer_a A.\n# TYPE psql_streamer_a counter\npsql_streamer_a 1\n", "ends in _total"),
        ("# TYPE psql_streamer_a gauge\npsql_streamer_a 1\n", "no HELP"),
        ("psql_streamer_a 1\n", "no TYPE"),
        ("# HELP psql_streamer_a A.\n# TYPE psql_streamer_a gauge\npsql_streamer_a 1\npsql_streamer_a 2\n", "twice"),
        ("# HELP psql_streamer_a_milliseconds A.\n# TYPE psql_streamer_a_milliseconds gauge\n", "base unit"),
        ("# HELP psql_streamer_a_ms A.\n# TYPE psql_streamer_a_ms gauge\n", "abbreviated"),
        ("# HELP psql_streamer_aB A.\n# TYPE psql_streamer_aB gauge\n", "snake_case"),
        ("# HELP psql_streamer_a_gauge A.\n# TYPE psql_streamer_a_gauge gauge\n", "its type"),
        ("# HELP psql_streamer_a_sum A.\n# TYPE psql_streamer_a_sum gauge\n", "suffix"),
    ],
)
def test_the_lint_finds_what_promtool_finds(text: str, problem: str) -> None:
    assert any(problem in found for found in lint(text))


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not on PATH")
def test_promtool_has_nothing_to_say() -> None:
    checked = subprocess.run(["promtool", "check", "metrics"], input=everything(), text=True, capture_output=True)
    assert (checked.returncode, checked.stderr) == (0, "")
