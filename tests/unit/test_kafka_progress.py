"""How far a member is in its partitions, and what it holds."""

from __future__ import annotations

from sources.kafka.held import HeldRecords
from sources.kafka.offsets import Partition
from sources.kafka.progress import Progress
from sources.kafka.taken import Taken
from tests.unit.test_event_reader import Record

A, B = Partition("orders", 0), Partition("orders", 1)


def started(**durable: int) -> Progress:
    """Of A alone, from offset 5 on, which is the group's."""
    progress = Progress({Partition("orders", int(number)): offset for number, offset in durable.items()})
    progress.begin(A, committed=5, start=5)
    return progress


def test_what_is_confirmed_is_due_once_and_again_when_the_commit_failed() -> None:
    progress = started()
    progress.give({A: 9})
    progress.confirm({A: 8})
    assert progress.take_due() == {A: 8}
    assert not progress.take_due()
    progress.send_again([A, B])
    assert progress.take_due() == {A: 8}


def test_what_was_not_given_out_is_not_confirmed() -> None:
    progress = started()
    progress.give({A: 9})
    progress.confirm({A: 10, B: 3})
    assert not progress.take_due()
    assert progress.find_unconfirmed() == [A]


def test_offsets_without_a_record_are_committed_when_what_is_in_front_of_them_is_durable() -> None:
    progress = started()
    progress.note_came({A: 9})
    progress.note_empty(A, 12)
    progress.give({A: 9})
    assert progress.give_empty() == {A: 12}
    progress.note_end(A, 12)
    assert progress.lags == {A: 0}
    assert progress.find_unconfirmed() == [A], "the last record is on its way"
    progress.confirm({A: 9})
    assert progress.take_due() == {A: 9}
    progress.confirm({A: 12})
    assert progress.take_due() == {A: 12}
    assert not progress.give_empty(), "it is given out once"


def test_offsets_without_a_record_in_front_of_a_newer_one_are_those_of_that_record() -> None:
    progress = started()
    progress.note_came({A: 9})
    progress.note_empty(A, 12)
    progress.note_came({A: 13})
    progress.give({A: 13})
    assert not progress.give_empty()
    progress.note_empty(A, 14)
    assert progress.give_empty() == {A: 14}


def test_offsets_without_a_record_behind_those_on_their_way_from_the_session_before_wait_for_them() -> None:
    progress = Progress({})
    progress.begin(A, committed=5, start=9, on_its_way=9)
    progress.note_empty(A, 12)
    assert progress.give_empty() == {A: 12}
    assert progress.find_unconfirmed() == [A]
    progress.confirm({A: 9})
    assert progress.take_due() == {A: 9}


def test_offsets_without_a_record_behind_the_groups_need_no_record() -> None:
    progress = started()
    progress.note_empty(A, 7)
    assert progress.give_empty() == {A: 7}
    progress.confirm({A: 7})
    assert progress.take_due() == {A: 7}


def test_what_is_given_back_is_not_waited_for() -> None:
    progress = started()
    progress.give({A: 9})
    progress.give_back([A], {A: 5})
    progress.confirm({A: 5})
    assert not progress.find_unconfirmed()


def test_what_is_given_back_is_what_lies_behind_the_last_batch_and_no_more() -> None:
    progress = started()
    progress.begin(B, committed=5, start=5)
    progress.give({A: 9, B: 8})
    progress.give_back_behind({A: 7, B: 3})
    assert progress.find_unconfirmed() == [A]
    progress.confirm({A: 7})
    assert not progress.find_unconfirmed()


def test_a_transaction_is_offered_the_same_offsets_until_it_is_committed() -> None:
    progress = started()
    progress.begin(B, committed=-1, start=0)
    progress.give({A: 9, B: 3})
    assert progress.offer({A: 7, B: 3}) == {A: 7, B: 3}
    assert progress.offer({A: 7, B: 3}) == {A: 7, B: 3}
    assert progress.offer({A: 9, B: 3}) == {A: 9}


def test_a_transaction_is_offered_no_offsets_of_others_and_none_of_records_that_were_not_given_out() -> None:
    progress = started()
    other = Partition("orders", 7)
    assert progress.offer({A: 9, other: 3}) == {}
    progress.give({A: 9})
    assert progress.offer({A: 4, other: 4}) == {}, "the group's offset does not go back"
    assert progress.offer({A: 9, other: 5}) == {A: 9}
    progress.drop([A])
    progress.begin(A, committed=12, start=12)
    progress.give({A: 15})
    assert progress.offer({A: 9, other: 6}) == {}
    assert progress.offer({A: 15, other: 6}) == {A: 15}


def test_what_was_in_flight_is_waited_for_and_committed_when_it_is_durable() -> None:
    progress = Progress({A: 7})
    progress.begin(A, committed=5, start=9, on_its_way=9)
    assert progress.take_due() == {A: 7}
    assert progress.find_unconfirmed([A, B]) == [A]
    progress.confirm({A: 9})
    assert progress.take_due() == {A: 9}


def test_what_is_read_again_while_it_is_on_its_way_is_committed_when_it_is_durable_for_the_second_time() -> None:
    progress = Progress({A: 7})
    progress.begin(A, committed=5, start=5, on_its_way=9)
    assert progress.find_unconfirmed() == [A]
    progress.give({A: 8})
    for offset in (8, 9):
        progress.confirm({A: offset})
    assert progress.take_due() == {}
    assert progress.find_unconfirmed() == [A]
    progress.give({A: 12})
    progress.confirm({A: 6})
    assert progress.take_due() == {A: 6}
    progress.confirm({A: 12})
    assert progress.take_due() == {A: 12}
    assert progress.find_unconfirmed() == []


def test_nothing_is_waited_for_where_the_group_begins_with_the_oldest_record() -> None:
    progress = Progress({})
    progress.begin(A, committed=-1001, start=-2, first=5)
    progress.note_end(A, 5)
    assert (progress.lags, progress.find_unconfirmed()) == ({A: 0}, [])


def test_what_is_on_its_way_and_read_again_is_waited_for_in_a_rebalance() -> None:
    progress = Progress({A: 7})
    progress.begin(A, committed=5, start=5, on_its_way=9)
    assert progress.find_unconfirmed([A, B]) == [A]
    assert progress.find_unconfirmed_offsets() == {A: 9}
    progress.confirm({A: 9})
    assert progress.find_unconfirmed([A, B]) == []


def test_what_was_durable_before_the_session_began_is_not_waited_for_though_it_is_read_again() -> None:
    progress = Progress({A: 9})
    progress.begin(A, committed=5, start=5, on_its_way=9)
    assert progress.find_unconfirmed() == []
    progress.give({A: 6})
    progress.confirm({A: 6})
    assert progress.take_due() == {A: 6}


def test_a_partition_that_is_gone_is_not_committed() -> None:
    progress = started()
    progress.give({A: 9})
    progress.confirm({A: 9})
    progress.drop([A])
    assert not progress.take_due()
    assert not progress.lags


def test_the_lag_of_a_source_that_is_ahead_of_its_group_is_that_behind_the_source() -> None:
    progress = Progress({})
    progress.begin(A, committed=5, start=9)
    progress.note_end(A, 12)
    assert progress.lags == {A: 3}


def test_the_lag_is_that_behind_what_was_given_out() -> None:
    progress = started()
    assert progress.lags == {A: -1}
    progress.note_end(A, 12)
    assert progress.lags == {A: 7}
    progress.give({A: 11})
    progress.note_end(A, 12)
    progress.note_end(B, 40)
    assert progress.lags == {A: 1}


def records(part: int, count: int, first: int = 0) -> Taken:
    return Taken.collect([Record(b"k", b"v" * 100, at, part=part) for at in range(first, first + count)])


def test_records_are_taken_in_their_order_up_to_what_a_batch_holds() -> None:
    held = HeldRecords(most_records=6, most_bytes=1 << 20)
    for first in (0, 3, 6):
        held.put(records(0, 3, first))
    assert [message.offset() for message in held.take().messages] == [0, 1, 2, 3, 4, 5]
    assert [message.offset() for message in held.take().messages] == [6, 7, 8]
    assert (held.size, bool(held)) == (0, False)


def test_many_bytes_are_taken_in_pieces() -> None:
    held = HeldRecords(most_records=100, most_bytes=2 * 351)
    held.put(records(0, 5))
    assert held.size_of_record == 351
    sizes = []
    while held:
        sizes.append(len(held.take().messages))
    assert (sum(sizes), max(sizes)) == (5, 2)


def test_records_of_partitions_that_are_given_up_are_dropped() -> None:
    held = HeldRecords(most_records=100, most_bytes=1 << 20)
    held.put(records(0, 2))
    held.put(records(1, 3))
    size = held.size
    held.forget({Partition("orders", 1)})
    assert held.size == size * 2 // 5
    assert {message.partition() for message in held.take().messages} == {0}


def test_what_was_given_back_as_a_whole_is_left_from_where_reading_began() -> None:
    progress = Progress({})
    progress.begin(A, committed=-1, start=-2, first=1000)
    progress.give({A: 1003})
    progress.give_back([A], {})
    progress.note_end(A, 1003)
    assert progress.lags == {A: 3}


def test_an_end_that_is_older_than_another_is_no_end() -> None:
    progress = started()
    progress.note_end(A, 12)
    progress.note_end(A, 9)
    assert progress.lags == {A: 7}


def test_all_has_come_up_to_the_end_of_a_transaction() -> None:
    progress = started()
    assert progress.list_reached() == {A: 5}
    progress.note_came({A: 9})
    progress.note_empty(A, 12)
    assert progress.list_reached() == {A: 12}
