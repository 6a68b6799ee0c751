"""Where a source goes on, and that a position of another stream is refused."""

from __future__ import annotations

import pytest

from psql_streamer.checkpoint.resume import Resume, choose_position
from psql_streamer.checkpoint.store_format import StoredPosition
from psql_streamer.errors import PositionRefused
from psql_streamer.model import Position

HERE, THERE = Position({"n": 1}, "n=1"), Position({"n": 2}, "n=2")


def test_a_source_goes_on_at_its_stored_position() -> None:
    stored = StoredPosition(HERE, {"slot": "s", "timeline": "1"})
    assert choose_position("take a copy", stored, {"slot": "s", "timeline": "1", "new": "x"}, None) == Resume(HERE)
    assert choose_position("take a copy", None, {"slot": "s"}, None) == Resume(None)


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"slot": "other", "timeline": "1"}, 'was made with slot "s", now "other": if that is right, take a copy'),
        ({"file": "shop.sqlite"}, 'was made with slot "s", of which this source knows nothing, timeline "1", of which'),
    ],
)
def test_a_position_of_another_stream_is_refused_with_the_difference(now: dict[str, str], said: str) -> None:
    with pytest.raises(PositionRefused, match="the stored position n=1 was made with") as refused:
        choose_position("take a copy", StoredPosition(HERE, {"slot": "s", "timeline": "1"}), now, None)
    assert said in str(refused.value)


def test_an_override_is_the_operators_word_once() -> None:
    stored = StoredPosition(HERE, {"slot": "s"})
    assert choose_position("take a copy", stored, {"slot": "other"}, THERE) == Resume(THERE, overriding=True)
    followed = StoredPosition(HERE, {"slot": "s"}, override="n=2")
    assert choose_position("take a copy", followed, {"slot": "s"}, THERE) == Resume(HERE)
