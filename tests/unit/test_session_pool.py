"""Work on several things at once, each thread with a session of its own."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from psql_streamer.spark.session_pool import SessionPool


class Sessions:
    """In place of a SparkSession: gives others, and knows how many."""

    def __init__(self) -> None:
        self.made = 0

    def newSession(self) -> Sessions:  # noqa: N802 - pyspark's name
        self.made += 1
        return Sessions()


def pool_of(sessions: Sessions, most: int) -> SessionPool:
    given: Any = sessions
    return SessionPool(given, most)


def test_two_are_at_work_at_once_and_keep_their_order() -> None:
    both = threading.Barrier(2, timeout=10)

    def work(session: Any, number: int) -> tuple[int, Any]:
        both.wait()
        return number, session

    sessions = Sessions()
    tables = pool_of(sessions, 2)
    for _ in range(2):
        done = tables.run_each(work, [1, 2, 3, 4])
        assert [number for number, _ in done] == [1, 2, 3, 4]
        assert sessions not in [session for _, session in done]
    assert sessions.made == 2
    tables.close()


def test_one_alone_and_one_at_a_time_take_the_session_that_was_given() -> None:
    sessions = Sessions()
    for most, numbers in ((4, [7]), (1, [1, 2, 3])):
        assert pool_of(sessions, most).run_each(lambda session, number: (session is sessions, number), numbers) == [
            (True, number) for number in numbers
        ]
    assert sessions.made == 0


def test_the_first_failure_in_order_is_raised_when_all_have_ended() -> None:
    ended: list[int] = []

    def work(_: Any, number: int) -> None:
        try:
            if number % 2:
                raise ValueError(number)
        finally:
            ended.append(number)

    tables = pool_of(Sessions(), 3)
    with pytest.raises(ValueError, match=r"^3$"):
        tables.run_each(work, [2, 3, 5, 6])
    assert sorted(ended) == [2, 3, 5, 6]
    assert tables.run_each(lambda _, number: number, [1, 2]) == [1, 2]
    tables.close()


def test_a_session_that_cannot_be_made_is_a_failure_of_the_work() -> None:
    class Broken(Sessions):
        def newSession(self) -> Sessions:  # noqa: N802 - pyspark's name
            raise ConnectionError("the JVM ended")

    with pytest.raises(ConnectionError):
        pool_of(Broken(), 2).run_each(lambda _, number: number, [1, 2])
