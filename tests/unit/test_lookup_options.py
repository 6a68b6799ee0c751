"""What may stand in [spark.lookups.NAME]."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from psql_streamer.spark.options import SparkOptions

CSV = {"kind": "csv", "path": "/data/x.csv"}
CHANGELOG = {"kind": "changelog", "source": "db1", "table": "public.t"}
SECRET = "postgresql://me:verysecret@host/db"


def problem(lookup: dict[str, Any], name: str = "x") -> str:
    with pytest.raises(ValidationError) as refused:
        SparkOptions.model_validate({"lookups": {name: lookup}})
    return str(refused.value)


@pytest.mark.parametrize(
    ("lookup", "says"),
    [
        ({"kind": "cvs", "path": "x"}, "'csv', 'json', 'parquet', 'jdbc', 'postgres' or 'changelog'"),
        ({"kind": "csv"}, 'of kind "csv" takes path; it has neither'),
        ({**CSV, "url": SECRET}, 'of kind "csv" takes path; it has path and url'),
        ({"kind": "jdbc", "url": SECRET}, 'of kind "jdbc" takes url and table, or url and query; it has url'),
        ({"kind": "postgres", "url": SECRET, "source": "db1", "table": "t"}, "it has source and table and url"),
        ({**CHANGELOG, "refresh": "5m"}, "is kept current by the stream"),
        ({**CHANGELOG, "options": {"a": 1}}, "takes no options"),
        ({"kind": "parquet", "path": "x", "pth": "y"}, "Extra inputs are not permitted"),
        ({**CSV, "refresh": "chnage"}, "refresh"),
        ({**CSV, "refresh": 5}, "refresh"),
        ({"kind": "postgres", "url": SECRET, "table": "t", "refresh": "change"}, "only files tell when they change"),
        ({**CSV, "maxAge": "1h"}, "has maxAge without refresh"),
        ({**CSV, "refresh": "1h", "maxAge": "5m"}, "every version would become too old"),
        ({**CSV, "refresh": "change", "maxAge": "5s"}, "every version would become too old"),
        ({**CSV, "refresh": "1h", "onStale": "stop"}, 'has onStale = "stop" without maxAge'),
        ({"kind": "parquet", "path": "x", "schema": "a INT", "refresh": "-5m"}, "greater than 0"),
    ],
)
def test_what_makes_no_sense_is_refused(lookup: dict[str, Any], says: str) -> None:
    found = problem(lookup)
    assert says in found
    assert "verysecret" not in found


@pytest.mark.parametrize("name", ["changes", "Changes", "a b", "1st", "a.b", ""])
def test_a_lookup_has_a_name_that_a_query_can_use(name: str) -> None:
    assert "view" in problem(CSV, name)


def test_addresses_and_options_are_not_shown() -> None:
    lookups = {
        "a": {
            "kind": "jdbc",
            "url": SECRET,
            "query": "SELECT 1",
            "options": {"password": "verysecret", "fetchsize": 5},
        },
        "b": CHANGELOG,
    }
    options = SparkOptions.model_validate({"lookups": lookups})
    assert "verysecret" not in repr(options)
    assert options.lookups["a"].options == {"password": "verysecret", "fetchsize": "5"}
