"""Calls are given up when they take too long, and one thread looks after all of them."""

from __future__ import annotations

import threading
import time

from sources.postgres.deadlines import Deadlines
from tests.kafka_sinks import wait_until

LONG = 60.0


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "deadlines"]


def test_a_call_that_takes_too_long_is_given_up_at_its_deadline() -> None:
    deadlines, given_up = Deadlines(), threading.Event()
    began = time.monotonic()
    with deadlines.keep(0.2, given_up.set):
        assert given_up.wait(30)
    assert time.monotonic() - began >= 0.2


def test_a_shorter_deadline_behind_a_longer_one_is_kept() -> None:
    deadlines, first, second = Deadlines(), threading.Event(), threading.Event()
    with deadlines.keep(LONG, first.set), deadlines.keep(0.05, second.set):
        assert second.wait(30)
    assert not first.is_set()


def test_a_call_that_was_given_up_does_not_keep_others_from_it() -> None:
    deadlines, given_up = Deadlines(), [threading.Event() for _ in range(3)]
    for one in given_up:
        with deadlines.keep(0.02, one.set):
            assert one.wait(30)


def test_a_call_that_is_over_in_time_is_not_given_up_and_starts_no_thread_of_its_own() -> None:
    deadlines, given_up, before = Deadlines(), threading.Event(), len(threads())
    for _ in range(1000):
        with deadlines.keep(0.5, given_up.set):
            pass
    assert len(threads()) <= before + 1
    wait_until(lambda: len(threads()) <= before)  # it ends behind its last deadline
    assert not given_up.is_set()
    with deadlines.keep(0.02, given_up.set):
        assert given_up.wait(30), "another thread begins"


def test_calls_of_several_threads_are_each_given_up_alone() -> None:
    deadlines, missed = Deadlines(), []
    over = threading.Barrier(9)

    def call(number: int) -> None:
        with deadlines.keep(0.05 if number % 2 else LONG, lambda: missed.append(number)):
            over.wait(30)

    callers = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for caller in callers:
        caller.start()
    wait_until(lambda: sorted(missed) == [1, 3, 5, 7])
    over.wait(30)
    for caller in callers:
        caller.join(30)
    assert sorted(missed) == [1, 3, 5, 7]
