"""Positions of a Kafka source that move on with every batch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sources.kafka.offsets import Partition, move_position, to_offsets, to_position

PARTITIONS = st.builds(Partition, st.sampled_from(["a", "b", "c.d"]), st.integers(0, 12))
OFFSETS = st.dictionaries(PARTITIONS, st.integers(0, 10**15), max_size=12)
IDS = st.dictionaries(st.sampled_from(["a", "b", "c.d"]), st.sampled_from(["x1", "y2"]))


@given(begin=OFFSETS, moves=st.lists(OFFSETS, max_size=5), ids=IDS, later_ids=IDS)
def test_a_position_that_moves_is_that_of_all_offsets(
    begin: dict[Partition, int], moves: list[dict[Partition, int]], ids: dict[str, str], later_ids: dict[str, str]
) -> None:
    offsets, position = dict(begin), to_position(begin, ids)
    for moved in moves:
        ids = {**later_ids, **ids}
        before, kept = position, to_offsets(position)
        offsets = {**offsets, **moved}
        position = move_position(position, moved, offsets, ids)
        assert to_offsets(before) == kept, "the one before stays as it was"
        assert to_offsets(position) == offsets
        assert str(position) == str(to_position(offsets, ids))
        assert {topic: position.data[topic] for topic, _ in moved} == {
            topic: to_position(offsets, ids).data[topic] for topic, _ in moved
        }
