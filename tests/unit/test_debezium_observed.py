"""The format `debezium` gives what Debezium 3.6.3.Final was seen to write of the same changes; what differs is here.

tests/data/debezium: scenario.sql ran against PostgreSQL 15; stream.bin is what a walsender sent of it, observed.jsonl
the records (topic, key, value, headers) that Debezium's PostgreSQL connector and Connect's JSON converter made,
schemas.json the schemas that came with them, types.json the types that its catalog had.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from psql_streamer import __version__
from psql_streamer.events.records import Records
from psql_streamer.events.routing import Router
from psql_streamer.model import POSTGRESQL, Batch, SourceInfo
from psql_streamer.pgoutput.decoder import Decoder
from psql_streamer.pgoutput.frames import FrameBuffer
from psql_streamer.pgtypes.catalog import TypeCatalog, TypeRow
from tests.connect_schema import misfits
from tests.decoding import BEGINNING, keyed_by
from tests.encoding import encoder_of

DATA = Path(__file__).parents[1] / "data" / "debezium"
TRANSACTIONS, MESSAGES = "shop.transaction", "shop.message"

VALUES: dict[tuple[int, str], tuple[Any, Any]] = {
    # The members of a Java map, in no order that means anything.
    (9223372036854775807, "hs"): ('{"b \\"q":null,"a":"1"}', '{"a":"1","b \\"q":null}'),
}
"""(key of `typed`, column) -> what Debezium wrote, and what stands there here, of values that differ on purpose."""


def test_keys_values_and_headers_are_the_observed_ones() -> None:
    ours = records_of(schemas=False)
    observed = expected()
    assert [(one["topic"], one["key"]) for one in ours] == [(one["topic"], one["key"]) for one in observed]
    for mine, seen in zip(ours, observed, strict=True):
        for end in (mine["value"] or {}, seen["value"] or {}):
            # In no order that means anything.
            (end.get("data_collections") or []).sort(key=lambda one: one["data_collection"])
        assert json.dumps(mine) == json.dumps(seen)


def test_schemas_are_the_observed_ones_and_payloads_the_same_as_without() -> None:
    schemas = json.loads((DATA / "schemas.json").read_text())
    for mine, bare in zip(records_of(schemas=True), records_of(schemas=False), strict=True):
        for part in ("key", "value"):
            if mine[part] is not None:
                schema = mine[part]["schema"]
                assert json.dumps(schema) == json.dumps(schemas[schema["name"]])
                assert misfits(schema, mine[part]["payload"]) == []
            assert bare[part] == (mine[part] and mine[part]["payload"])


def test_values_that_no_type_of_debeziums_holds_are_counted_by_column() -> None:
    encoder = encoder_of("debezium", Router({}, "shop", "", MESSAGES), {})
    counted = encoder.encode(batch()).nulled
    assert counted == {"public.typed.n": 1, "public.typed.n12": 1, "public.typed.vb1": 1}


def records_of(*, schemas: bool) -> list[dict[str, Any]]:
    """Ours."""
    router = Router({}, "shop", "", MESSAGES)
    encoder = encoder_of("debezium", router, {}, schemas=schemas, transaction_topic=TRANSACTIONS)
    return list(_records(encoder.encode(batch())))


def _records(records: Records) -> list[dict[str, Any]]:
    return [
        {
            "topic": records.look_up_topic(row),
            "key": _parsed(records.keys[row].as_py()),
            "value": _parsed(records.values[row].as_py()),
            "headers": {
                name: json.loads(column[row].as_py())
                for name, column in records.headers.items()
                if column[row].is_valid
            },
        }
        for row in range(len(records))
    ]


def expected() -> list[dict[str, Any]]:
    """What was observed, with the differences that docs/events.md lists."""
    of = batch().transactions
    commits = {
        xid: (lsn, micros)
        for xid, lsn, micros in zip(of.ids.to_pylist(), of.commit.tolist(), of.commit_ts.tolist(), strict=True)
    }
    found = [json.loads(line) for line in (DATA / "observed.jsonl").read_text().split("\n") if line]
    moved: Counter[Any] = Counter()
    messages: Counter[int] = Counter()
    for record in found:
        value = record["value"]
        if record["topic"] == TRANSACTIONS:
            xid = int(value["id"].partition(":")[0])
            value["id"] = record["key"]["id"] = f"{xid}:{commits[xid][0]}"
            if value["status"] == "END":
                _count_as_we_do(value, moved, xid)
        elif value is not None:
            _as_we_say(record, commits, moved, messages)
    return found


def _as_we_say(
    record: dict[str, Any], commits: dict[int, tuple[int, int]], moved: Counter[Any], messages: Counter[int]
) -> None:
    value, source = record["value"], record["value"]["source"]
    xid, table = source["txId"], f"{source['schema']}.{source['table']}"
    commit_lsn, micros = commits.get(xid, (source["lsn"], source["ts_us"]))
    source["version"] = __version__
    source["sequence"] = json.dumps([str(commit_lsn), str(source["lsn"])], separators=(",", ":"))
    times = {"ts_ms": micros // 1000, "ts_us": micros, "ts_ns": micros * 1000}
    value |= {name: time for name, time in times.items() if name in value}
    assert {name: source[name] for name in times} == times
    if "__debezium.oldkey" in record["headers"]:
        moved[xid] += 1
        moved[xid, table] += 1
    if place := value["transaction"]:
        place["id"] = f"{xid}:{commit_lsn}"
        place["total_order"] -= moved[xid]
        place["data_collection_order"] -= moved[xid, table]
        if value["op"] == "m":
            messages[xid] += 1
            place["data_collection_order"] = messages[xid]
    if source["table"] == "typed":
        for column, text in value["after"].items():
            theirs, ours = VALUES.get((record["key"]["id"], column), (text, text))
            assert text == theirs
            value["after"][column] = ours


def _count_as_we_do(end: dict[str, Any], moved: Counter[Any], xid: int) -> None:
    end["event_count"] -= moved[xid]
    counts: Counter[str] = Counter()
    for one in end["data_collections"]:
        message = "LogicalDecodingMessageId" in one["data_collection"]
        table = "LOGICAL_DECODING_MESSAGE" if message else one["data_collection"]
        counts[table] += one["event_count"] - moved[xid, table]
    end["data_collections"] = [{"data_collection": name, "event_count": count} for name, count in counts.items()]


@cache
def batch() -> Batch:
    """The stream, as one batch."""
    frames = FrameBuffer()
    frames.feed((DATA / "stream.bin").read_bytes())
    block = frames.take(1 << 30, 1 << 30)
    assert block is not None
    rows = json.loads((DATA / "types.json").read_text())
    types = TypeCatalog(TypeRow(*columns, labels=tuple(labels)) for *columns, labels in rows)
    origin = SourceInfo(POSTGRESQL, "shop", "localhost", "shop")
    decoder = Decoder(origin, BEGINNING, types.resolve, keyed_by("id"), transaction_metadata=True)
    return decoder.decode(block.data, block.offsets)


def _parsed(text: bytes | None) -> Any:
    return None if text is None else json.loads(text)
