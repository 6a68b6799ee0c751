"""Which rows a `sql` source may read: none that another one with a smaller key can still precede."""

from __future__ import annotations

from sources.sql.settling import Settling


def writers(*names: str) -> frozenset[str]:
    return frozenset(names)


def test_what_nobody_writes_below_is_settled_at_once() -> None:
    settling = Settling(0, by_writers=True)
    settling.observe((5,), 0.0, writers())
    assert settling.settled == (5,)
    assert not settling.pending


def test_a_key_waits_for_those_who_wrote_when_it_was_seen_and_for_nobody_who_came_later() -> None:
    settling = Settling(0, by_writers=True)
    settling.observe((5,), 0.0, writers("3/1", "4/1"))
    assert settling.settled is None
    settling.observe((7,), 0.1, writers("4/1", "9/9"))
    assert settling.settled is None
    assert settling.waits_for == {"4/1"}
    settling.observe(None, 0.2, writers("9/9"))
    assert settling.settled == (5,), "7 was seen beside 9/9"
    settling.observe(None, 0.3, writers("8/8"))
    assert settling.settled == (7,)


def test_what_waits_is_settled_though_nothing_new_is_seen() -> None:
    settling = Settling(0, by_writers=True)
    settling.observe((10,), 0.0, writers("3/1"))
    assert settling.last_seen == (10,)
    settling.observe(None, 0.1, writers("4/1"))
    assert (settling.settled, settling.last_seen, settling.pending) == ((10,), (10,), False)


def test_what_comes_behind_the_last_row_that_is_left_settles_anew() -> None:
    settling = Settling(0, by_writers=True)
    settling.observe((10,), 0.0, writers())
    settling.end_at((5,))
    assert settling.last_seen == (5,)
    settling.observe((7,), 0.1, writers("3/1"))
    assert settling.settled == (5,)


def test_a_writer_who_turned_into_a_prepared_transaction_is_waited_for() -> None:
    settling = Settling(0, by_writers=True)
    settling.observe((5,), 0.0, writers("3/1"))
    settling.observe(None, 0.1, writers("-1/700"), successors=writers("-1/700"))
    assert settling.settled is None
    settling.observe(None, 0.2, writers("-1/701"), successors=writers("-1/701"))
    assert settling.settled is None, "one prepared transaction is gone, and might have been another's"
    settling.observe(None, 0.3, writers())
    assert settling.settled == (5,)


def test_a_prepared_transaction_that_began_after_the_look_holds_nothing_up() -> None:
    settling = Settling(0, by_writers=True)
    settling.observe((5,), 0.0, writers("3/1"))
    settling.observe(None, 0.1, writers("3/1", "-1/700"), successors=writers("-1/700"))
    assert settling.waits_for == {"3/1"}


def test_a_server_that_lists_writers_late_is_looked_at_late() -> None:
    settling = Settling(0, by_writers=True, first_look=0.25)
    settling.observe((5,), 0.0, writers())
    assert settling.settled is None
    settling.observe(None, 0.2, writers())
    assert settling.settled is None
    settling.observe(None, 0.3, writers("7"))
    assert settling.waits_for == {"7"}
    settling.observe(None, 0.4, writers())
    assert settling.settled == (5,)


def test_without_writers_a_key_is_settled_when_it_has_been_there_for_long_enough() -> None:
    settling = Settling(5.0, by_writers=False)
    settling.observe((5,), 0.0)
    settling.observe((9,), 3.0)
    settling.observe(None, 4.9)
    assert settling.settled is None
    settling.observe(None, 5.0)
    assert settling.settled == (5,)
    settling.observe(None, 8.0)
    assert settling.settled == (9,)


def test_both_are_waited_for_where_both_are_wanted() -> None:
    settling = Settling(1.0, by_writers=True)
    settling.observe((5,), 0.0, writers())
    assert settling.settled is None
    settling.observe(None, 1.0, writers())
    assert settling.settled == (5,)


def test_keys_that_come_without_end_are_settled_one_after_the_other() -> None:
    settling = Settling(5.0, by_writers=False)
    behind = []
    for tick in range(1000):
        settling.observe((tick,), tick / 10)
        if settling.settled is not None:
            behind.append(tick - int(settling.settled[0]))
    assert max(behind) <= 60, "five seconds, and the time between two samples"
