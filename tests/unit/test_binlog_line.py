"""Where rows of a snapshot stand in a binary log."""

from __future__ import annotations

import pytest

from sources.mysql.gtid_sets import DomainPositions, GtidSet
from sources.mysql.places import LogPlace, Place

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
OTHER = "3e11fa47-71ca-11e1-9e33-c80aa9429563"


def test_places_are_in_the_order_of_the_files_numbers() -> None:
    texts = ["binlog.000009:4", "binlog.000009:100", "binlog.000010:4", "binlog.999999:5", "binlog.1000000:4"]
    places = [LogPlace.from_place(Place(file, int(offset))) for file, offset in (text.split(":") for text in texts)]
    assert places[::-1] == sorted(places, reverse=True)
    assert list(map(str, places)) == texts


@pytest.mark.parametrize(
    ("executed", "expected"),
    [
        (GtidSet.parse(f"{UUID}:1-5:8-9,{OTHER}:1-1000"), (UUID, 9)),
        (GtidSet.parse(f"{OTHER}:1-1000"), (UUID, 0)),
        (DomainPositions.parse("1-2-30,0-1-4"), ("0", 4)),
        (DomainPositions.parse(""), ("", 0)),
    ],
)
def test_rows_before_any_transaction_follow_the_last_one_of_the_same_numbers(
    executed: GtidSet | DomainPositions, expected: tuple[str, int]
) -> None:
    assert executed.find_last(UUID) == expected
