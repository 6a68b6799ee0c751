"""Which records of rejected requests are known to be why, and how small requests become."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from psql_streamer.model import NO_RECORD_TIME
from sinks.kafka import request_size
from sinks.kafka.outgoing import Outgoing
from sinks.kafka.producer import Failed
from sinks.kafka.rejections import find_rejected, find_without_key, measure_sizes
from sinks.kafka.request_size import RequestSize
from sinks.kafka.shipment import Shipment

LOG = logging.getLogger(__name__)
LARGE, INVALID, OTHER, PURGED, POLICY, TIME = (
    KafkaError(code)
    for code in (
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError._INVALID_DIFFERENT_RECORD,
        KafkaError._PURGE_QUEUE,
        KafkaError.POLICY_VIOLATION,
        KafkaError.INVALID_TIMESTAMP,
    )
)


def outgoing(sizes: Sequence[int], partitions: Sequence[int] = (), keyless: Sequence[int] = ()) -> Outgoing:
    count = len(sizes)
    keys = [None if at in keyless else b"" for at in range(count)]
    return Outgoing(
        ("a",),
        np.zeros(count, np.int32),
        pa.array(keys, pa.binary()),
        pa.array([b"x" * size for size in sizes], pa.binary()),
        np.array(partitions or [0] * count, np.int32),
    )


def failures(*errors: KafkaError | None) -> list[Failed]:
    return [Failed(at, error) for at, error in enumerate(errors) if error is not None]


@pytest.mark.parametrize(
    ("errors", "partitions", "found"),
    [
        ([None, LARGE, None], [0, 0, 0], [1]),  # the only one of its partition was alone
        ([LARGE, LARGE, None], [0, 0, 0], []),  # either of them
        ([LARGE, LARGE, None], [0, 1, 0], [0, 1]),
        ([LARGE, PURGED, PURGED], [0, 0, 0], [0]),  # the rest of a transaction says nothing of the request
        ([OTHER, INVALID, OTHER], [0, 0, 0], [1]),  # brokers say which
        ([INVALID, INVALID, INVALID], [0, 0, 0], []),  # brokers before KIP-467 do not
        ([OTHER, INVALID, LARGE], [0, 0, 0], [1]),
        ([POLICY, POLICY, None], [0, 0, 0], []),
        ([PURGED, PURGED, None], [0, 0, 0], []),
    ],
)
def test_a_record_is_rejected_if_it_was_alone_or_brokers_say_so(
    errors: list[KafkaError | None], partitions: list[int], found: list[int]
) -> None:
    records, failed = outgoing([1, 1, 1], partitions), failures(*errors)
    assert [one.place for one in find_rejected(failed, records, 100, singly=False)] == found
    whole = [one.place for one in find_rejected(failed, records, 100, singly=True)]
    assert whole == [one.place for one in failed if one.error is not PURGED]


def test_a_record_with_the_time_of_its_writing_is_not_rejected_for_it_before_it_was_written_alone() -> None:
    records, failed = outgoing([1, 1, 1], [0, 1, 2]), failures(TIME, TIME, TIME)
    given = replace(records, timestamps=np.array([7, NO_RECORD_TIME, 9]))
    assert find_rejected(failed, records, 100, singly=False) == []
    assert [one.place for one in find_rejected(failed, given, 100, singly=False)] == [0, 2]
    assert find_rejected(failed, records, 100, singly=True) == failed


@pytest.mark.parametrize(
    ("errors", "keyless", "found"),
    [
        ([INVALID, INVALID, INVALID], [0, 1, 2], [0, 1, 2]),
        ([INVALID, INVALID, PURGED], [0, 1, 2], [0, 1]),
        ([INVALID, INVALID, INVALID], [0, 2], []),  # the second one has a key, so there is another reason
        ([INVALID, LARGE, LARGE], [0], [0]),
    ],
)
def test_records_are_rejected_if_all_that_are_invalid_lack_a_key(
    errors: list[KafkaError | None], keyless: list[int], found: list[int]
) -> None:
    records = outgoing([1, 1, 1], keyless=keyless)
    assert [one.place for one in find_rejected(failures(*errors), records, 100, singly=False)] == found


def test_a_topic_that_rejects_a_record_without_a_key_takes_none_without() -> None:
    records = replace(
        outgoing([1] * 6, keyless=[0, 2, 3, 5]),
        topic_names=("a", "b"),
        topics=np.array([0, 0, 0, 1, 1, 0], np.int32),
    )
    invalid, large = Failed(0, INVALID), Failed(3, LARGE)
    assert [one.place for one in find_without_key([invalid, large], records)] == [2, 5]
    assert [one.place for one in find_without_key([invalid, Failed(5, INVALID)], records)] == [2]
    assert find_without_key([large, Failed(1, INVALID)], records) == ()


def test_a_record_as_large_as_a_request_was_alone_in_it() -> None:
    records, failed = outgoing([100, 5, 101, 99]), failures(LARGE, LARGE, LARGE, LARGE)
    assert [one.place for one in find_rejected(failed, records, 100, singly=False)] == [0, 2]
    assert find_rejected(failures(POLICY, None, POLICY), records, 100, singly=False) == []


def shipped(records: Outgoing, *rejected: int) -> Shipment:
    made = Shipment(records)
    for place in rejected:
        made.reject(place, LARGE)
    return made


def lowered(size: RequestSize, shipment: Shipment, *places: int) -> bool:
    return size.lower([Failed(place, LARGE) for place in places], shipment)


def test_requests_stay_as_small_as_the_topic_needs() -> None:
    size = RequestSize({}, LOG)
    assert size.properties == {}
    shipment = shipped(outgoing([300_000] * 8))
    assert lowered(size, shipment, 0, 1, 2)
    assert size.properties == {"batch.size": "250000"}
    size.settle([shipment])
    assert size.bytes == 250_000
    size.settle([shipped(outgoing([1]), 0)])
    assert size.bytes == 250_000, "a record that is rejected later says nothing of it"


def test_requests_are_as_large_as_before_when_a_record_was_why() -> None:
    size = RequestSize({"batch.size": "200000"}, LOG)
    records = outgoing([10, 60_000, 10])
    assert lowered(size, shipped(records), 0, 1, 2)
    assert size.bytes == 50_000
    size.settle([shipped(outgoing([5])), shipped(records, 1)])
    assert size.bytes == 200_000
    assert size.properties == {}


def test_requests_stay_small_where_large_records_come_often(monkeypatch: pytest.MonkeyPatch) -> None:
    size = RequestSize({"batch.size": "200000"}, LOG)
    records = outgoing([10, 60_000, 10])
    for expected in (200_000, 50_000):
        assert lowered(size, shipped(records), 0, 1, 2)
        size.settle([shipped(records, 1)])
        assert size.bytes == expected
    monkeypatch.setattr(request_size, "_OFTEN_SECONDS", 0.0)
    assert lowered(size, shipped(records), 0, 1, 2)
    size.settle([shipped(records, 1)])
    assert size.bytes == 50_000


def test_large_requests_are_tried_again_after_a_while_that_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(request_size.time, "monotonic", lambda: now)
    size, shipment, next_one = RequestSize({}, LOG), shipped(outgoing([300_000] * 8)), shipped(outgoing([1]))
    for wait in (600.0, 1_200.0, 2_400.0):
        assert lowered(size, shipment, 0, 1, 2)
        size.settle([shipment])
        now += wait - 1.0
        size.settle([next_one])
        assert size.bytes == 250_000
        now += 1.0
        size.settle([next_one])
        assert size.properties == {}
    size.settle([next_one])
    assert size.properties == {}


def test_large_requests_are_not_tried_again_under_a_shipment_that_is_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_size, "_SMALL_SECONDS", 0.0)
    size, shipment = RequestSize({}, LOG), shipped(outgoing([70_000] * 32))
    assert lowered(size, shipment, 0, 1, 2)
    assert lowered(size, shipment, 0, 1, 2)
    assert size.bytes == 62_500
    size.settle([shipment])
    assert size.bytes == 62_500


def test_a_shipment_that_was_given_up_or_cut_says_nothing_of_requests() -> None:
    size = RequestSize({}, LOG)
    assert lowered(size, shipped(outgoing([300, 300])), 0, 1)
    size.settle([shipped(outgoing([150, 150]))])
    assert size.properties == {}


def test_headers_count_as_bytes_of_a_request() -> None:
    headers = {"trace": pa.array([b"h" * 600, None, b"h" * 1_200], pa.binary())}
    records = replace(outgoing([10, 10, 10]), headers=headers)
    assert measure_sizes(records, np.array([0, 1, 2])).tolist() == [610, 10, 1_210]
    found = find_rejected(failures(LARGE, LARGE, LARGE), records, 1_000, singly=False)
    assert [one.place for one in found] == [2]


def test_smaller_requests_help_beside_a_record_of_another_topic_that_is_rejected_for_another_reason() -> None:
    size = RequestSize({}, LOG)
    assert size.lower(failures(LARGE, LARGE, OTHER), shipped(outgoing([1, 1, 1], [0, 0, 1])))


def test_a_record_explains_one_request_and_only_its_own() -> None:
    size = RequestSize({}, LOG)
    records = outgoing([400_000] * 5 + [10], [0, 0, 0, 0, 0, 1])
    assert lowered(size, shipped(records), 0, 1, 2, 3, 4)  # two requests
    size.settle([shipped(records, 1)])
    assert size.bytes == 250_000
    assert lowered(size, shipped(records), 0, 1)
    size.settle([shipped(records, 4)])
    assert size.bytes == 62_500


@pytest.mark.parametrize(
    "failed",
    [
        failures(LARGE),
        failures(LARGE, POLICY),
        failures(PURGED, PURGED),
        failures(POLICY, POLICY),
        failures(LARGE, PURGED),
    ],
)
def test_smaller_requests_help_where_several_records_together_are_too_large_and_nowhere_else(
    failed: list[Failed],
) -> None:
    size = RequestSize({}, LOG)
    assert not size.lower(failed, shipped(outgoing([1, 1])))
    assert size.bytes == 1_000_000


def test_there_is_a_smallest_size() -> None:
    size, shipment = RequestSize({}, LOG), shipped(outgoing([1, 1]))
    steps = 0
    while lowered(size, shipment, 0, 1):
        steps += 1
    assert (steps, size.bytes) == (4, 3906)
