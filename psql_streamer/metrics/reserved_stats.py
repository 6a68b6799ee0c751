"""The names in parts' stats that metrics read, and the types that they read. Values of others are in /stats alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from psql_streamer.metrics.lookup_metrics import LOOKUP_STAT_NAMES
from psql_streamer.metrics.part_stats import PART_STATS
from psql_streamer.metrics.stat_values import is_number, select_named, select_numbers


class Form(Enum):
    """The type of a value, in words."""

    NUMBER = "a number"
    BY_NAME = "anything by names"
    NUMBERS = "numbers by names"
    COUNTS = "a number, or numbers by names"
    LOOKUPS = "the numbers of each lookup by its name"


@dataclass(frozen=True)
class NamedCounts:
    """A key of a sink's stats that counts by name, and the label that has the name."""

    key: str
    label: str
    what: str


NAMED_COUNTS = (
    NamedCounts("skipped", "table", "Changes without a topic that Kafka allows."),
    NamedCounts("nulled", "column", "Values that the format cannot hold: they, or elements of them, are null."),
    NamedCounts("left_behind", "column", "Rows under a new key that lack a value, which the server did not send."),
)

LSN_KINDS = ("server", "received", "stored", "confirmed")
"""What of a source has a place in the WAL: `server_lsn`."""


def _select_number_stats(kind: str) -> Mapping[str, Form]:
    return {stat.key: Form.NUMBER for stat in PART_STATS if stat.kind == kind}


RESERVED_STATS: Mapping[str, Mapping[str, Form]] = {
    "source": {
        **_select_number_stats("source"),
        **{f"{kind}_lsn": Form.NUMBER for kind in LSN_KINDS},
        "cursors": Form.BY_NAME,
        "partitions": Form.NUMBERS,
    },
    "handler": {**_select_number_stats("handler"), "lookups": Form.LOOKUPS},
    "sink": {**_select_number_stats("sink"), **{counts.key: Form.COUNTS for counts in NAMED_COUNTS}},
}
"""By kind of part and name."""


def fits(form: Form, value: object) -> bool:
    """Whether metrics can show all of a value."""
    match form:
        case Form.NUMBER:
            return is_number(value)
        case Form.BY_NAME:
            return _are_all_in(value, select_named(value))
        case Form.NUMBERS:
            return _are_all_in(value, select_numbers(value))
        case Form.COUNTS:
            return is_number(value) or _are_all_in(value, select_numbers(value))
        case Form.LOOKUPS:
            lookups = select_named(value)
            return _are_all_in(value, lookups) and all(_is_lookup(one) for one in lookups.values())
        case _:
            assert_never(form)


def _are_all_in(value: object, shown: Mapping[str, object]) -> bool:
    return isinstance(value, Mapping) and len(value) == len(shown)


def _is_lookup(value: object) -> bool:
    known = {name: one for name, one in select_named(value).items() if name in LOOKUP_STAT_NAMES}
    return isinstance(value, Mapping) and all(map(is_number, known.values()))
