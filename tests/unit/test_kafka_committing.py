"""Which of a group's offsets only lag behind what an instance has read."""

from __future__ import annotations

import pytest

from sources.kafka.committing import Committing, add_topic_id, split_topic_id

AT_LEAST_ONCE, SAME_CLUSTER, ANOTHER_CLUSTER = Committing(), Committing(by_sink=True), Committing(writer="one")


@pytest.mark.parametrize("committing", [AT_LEAST_ONCE, SAME_CLUSTER, ANOTHER_CLUSTER])
def test_an_offset_without_a_mark_is_an_operators_and_counts(committing: Committing) -> None:
    for metadata in ("", None, "something else"):
        assert not committing.is_older(metadata, kept_place=True)
        assert not committing.is_older(metadata, kept_place=False)


@pytest.mark.parametrize("committing", [AT_LEAST_ONCE, SAME_CLUSTER, ANOTHER_CLUSTER])
def test_where_nobody_else_had_the_partition_any_commit_of_ours_lags(committing: Committing) -> None:
    assert committing.is_older(AT_LEAST_ONCE.mark, kept_place=True)
    assert committing.is_older(ANOTHER_CLUSTER.mark, kept_place=True)


def test_at_a_start_only_a_commit_of_the_instance_itself_lags_and_only_where_the_position_is_exact() -> None:
    assert ANOTHER_CLUSTER.is_older(ANOTHER_CLUSTER.mark, kept_place=False)
    assert not ANOTHER_CLUSTER.is_older(Committing(writer="two").mark, kept_place=False)
    assert not ANOTHER_CLUSTER.is_older(AT_LEAST_ONCE.mark, kept_place=False)
    assert not AT_LEAST_ONCE.is_older(AT_LEAST_ONCE.mark, kept_place=False)
    assert not SAME_CLUSTER.is_older(SAME_CLUSTER.mark, kept_place=False)


@pytest.mark.parametrize("committing", [AT_LEAST_ONCE, SAME_CLUSTER, ANOTHER_CLUSTER])
def test_a_commit_says_of_which_topic_it_is(committing: Committing) -> None:
    metadata = add_topic_id(committing.mark, "t", {"t": "q-1Z"})
    assert split_topic_id(metadata) == (committing.mark, "q-1Z")
    assert committing.is_older(metadata, kept_place=True)
    assert ANOTHER_CLUSTER.is_older(metadata, kept_place=False) is (committing is ANOTHER_CLUSTER)


@pytest.mark.parametrize("metadata", ["", "psql-streamer", "psql-streamer one", "something else"])
def test_a_commit_of_an_older_version_or_of_an_operator_names_no_topic(metadata: str) -> None:
    assert split_topic_id(metadata) == (metadata, "")
    assert add_topic_id(metadata, "t", {}) == metadata
