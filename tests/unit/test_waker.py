"""What makes a thread that waits in select look around."""

from __future__ import annotations

import select
from collections.abc import Iterator

import pytest

from sources.snapshot.waker import Waker


@pytest.fixture
def waker() -> Iterator[Waker]:
    made = Waker()
    made.open()
    yield made
    made.close()


def _ends_a_select(waker: Waker) -> bool:
    return bool(select.select([waker], [], [], 0)[0])


def test_a_select_ends_once_it_was_woken_and_waits_again_when_that_was_seen(waker: Waker) -> None:
    for _ in range(2):
        assert not _ends_a_select(waker)
        waker.wake()
        waker.wake()
        assert _ends_a_select(waker)
        waker.rest()
        waker.rest()
    assert not _ends_a_select(waker)


def test_what_woke_it_while_it_was_closed_does_not_keep_it_from_waking_again() -> None:
    waker = Waker()
    waker.wake()
    waker.open()
    waker.wake()
    assert _ends_a_select(waker)
    waker.rest()
    assert not _ends_a_select(waker)
    waker.close()
