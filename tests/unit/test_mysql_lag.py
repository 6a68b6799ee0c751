"""How many bytes of a binary log lie behind a place, by what the server said and by what came since."""

from __future__ import annotations

import pytest

from sources.mysql.places import Place
from sources.mysql.server import measure_bytes_behind

ASKED = [("log.000009", 500), ("log.000010", 300)]


@pytest.mark.parametrize(
    ("place", "received", "bytes_left"),
    [
        (Place("log.000009", 100), Place("log.000009", 100), 400 + 300),
        (Place("log.000010", 300), Place("log.000010", 300), 0),
        # More came than there was when the server was asked: in the same file, and in one that began since.
        (Place("log.000010", 100), Place("log.000010", 700), 600),
        (Place("log.000010", 100), Place("log.000011", 50), 200 + 50),
        (Place("log.000011", 20), Place("log.000011", 50), 30),
        # Two began since, and nobody said how large the first of them was.
        (Place("log.000011", 20), Place("log.000012", 50), None),
        (Place("log.000008", 20), Place("log.000009", 100), None),
    ],
)
def test_bytes_behind_a_place(place: Place, received: Place, bytes_left: int | None) -> None:
    assert measure_bytes_behind(place, received, ASKED) == bytes_left


def test_nothing_is_known_before_the_server_answered() -> None:
    assert measure_bytes_behind(Place("log.000010", 100), Place("log.000010", 700), []) is None
