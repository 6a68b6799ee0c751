"""What becomes of a member's commits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import pytest
from confluent_kafka import KafkaError, TopicPartition

from sources.kafka.commits import Commits
from sources.kafka.committing import Committing
from sources.kafka.member_state import MemberState
from sources.kafka.offsets import Partition
from sources.kafka.options import KafkaSourceOptions

REFUSED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not authorized to read topic")
READ, OTHER = Partition("t", 0), Partition("t", 1)


class Answered(NamedTuple):
    """As the client tells of a partition."""

    topic: str
    partition: int
    error: KafkaError | None


class Refusing:
    """A client whose brokers refuse what is committed of one partition."""

    def __init__(self) -> None:
        self.committed: list[dict[tuple[str, int], int]] = []

    def commit(self, offsets: Sequence[TopicPartition], asynchronous: bool) -> Sequence[Answered] | None:
        assert {one.metadata for one in offsets} == {"psql-streamer topic=abc"}
        self.committed.append({(one.topic, one.partition): one.offset for one in offsets})
        return None if asynchronous else [Answered("t", 0, REFUSED), Answered("t", 1, None)]


@pytest.fixture
def state() -> MemberState:
    """Of a member that has read and delivered one record of each of two partitions."""
    options = KafkaSourceOptions.model_validate({"type": "kafka", "hosts": ["h:1"], "topics": ["t"], "groupID": "g"})
    state = MemberState(options, {}, "")
    for one in (READ, OTHER):
        state.begin(one, committed=0, start=0)
    state._progress.give({READ: 1, OTHER: 1})
    state.confirm({READ: 1, OTHER: 1})
    return state


def test_a_partition_of_a_commit_that_is_refused_is_told_of_and_committed_again_alone(
    state: MemberState, caplog: pytest.LogCaptureFixture
) -> None:
    client, commits = Refusing(), Commits("k", Committing(), state, {"t": "abc"})
    commits.send(cast("Any", client))
    commits.note_answer(None, cast("Any", [Answered("t", 0, REFUSED), Answered("t", 1, None)]))
    assert "source.k: offsets of t[0] were not committed: not authorized to read topic" in caplog.text
    commits.send(cast("Any", client))
    assert len(client.committed) == 1  # not before a second has passed
    commits.finish(cast("Any", client))
    assert client.committed == [{READ: 1, OTHER: 1}, {READ: 1}]


def test_a_partition_of_the_last_commit_that_is_refused_is_told_of(
    state: MemberState, caplog: pytest.LogCaptureFixture
) -> None:
    Commits("k", Committing(), state, {"t": "abc"}).finish(cast("Any", Refusing()))
    assert "source.k: offsets of t[0] were not committed: not authorized to read topic" in caplog.text


def test_a_commit_that_fails_as_a_whole_is_made_again_as_a_whole(state: MemberState) -> None:
    client, commits = Refusing(), Commits("k", Committing(), state, {"t": "abc"})
    commits.send(cast("Any", client))
    commits.note_answer(REFUSED, cast("Any", [Answered("t", 0, None), Answered("t", 1, None)]))
    commits.finish(cast("Any", client))
    assert client.committed == [{READ: 1, OTHER: 1}] * 2


def test_commits_that_fail_for_long_are_on_status_until_one_is_taken(
    state: MemberState, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    commits, now = Commits("k", Committing(), state, {}), 100.0
    monkeypatch.setattr("sources.kafka.commits.time.monotonic", lambda: now)
    for _ in range(9):
        commits.note_answer(REFUSED, [])
        now += 1
    assert (state.summarize().problem, len(caplog.records)) == ("", 1)
    now += 1
    commits.note_answer(REFUSED, [])
    assert state.summarize().problem == "offsets are not committed: not authorized to read topic"
    assert len(caplog.records) == 2
    commits.note_answer(None, cast("Any", [Answered("t", 0, None)]))
    assert state.summarize().problem == ""


def test_one_commit_is_on_its_way_at_a_time_and_one_without_an_answer_is_on_status(
    state: MemberState, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client, commits, now = Refusing(), Commits("k", Committing(), state, {"t": "abc"}), 100.0
    monkeypatch.setattr("sources.kafka.commits.time.monotonic", lambda: now)
    commits.send(cast("Any", client))
    state._progress.give({READ: 2})
    state.confirm({READ: 2})
    now += 9
    commits.send(cast("Any", client))
    assert (client.committed, state.summarize().problem) == ([{READ: 1, OTHER: 1}], "")
    now += 1
    commits.send(cast("Any", client))
    assert state.summarize().problem == "offsets are not committed: the group's coordinator does not answer"
    assert "source.k: offsets were not committed: the group's coordinator does not answer" in caplog.text
    commits.note_answer(None, cast("Any", [Answered("t", 0, None), Answered("t", 1, None)]))
    commits.send(cast("Any", client))
    assert client.committed == [{READ: 1, OTHER: 1}, {READ: 2}]
    assert state.summarize().problem == ""


def test_commits_that_failed_are_not_on_status_when_others_have_the_partitions(
    state: MemberState, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, commits, now = Refusing(), Commits("k", Committing(), state, {"t": "abc"}), 100.0
    monkeypatch.setattr("sources.kafka.commits.time.monotonic", lambda: now)
    for _ in range(7):
        commits.send(cast("Any", client))
        commits.send(cast("Any", client))  # nothing is due while the answer is not there
        commits.note_answer(REFUSED, cast("Any", [Answered("t", 0, None), Answered("t", 1, None)]))
        now += 2
    assert state.summarize().problem == "offsets are not committed: not authorized to read topic"
    state.drop({READ, OTHER})
    commits.send(cast("Any", client))
    assert state.summarize().problem == ""
