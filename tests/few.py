"""Few rows go one by one, and most tests have few: with these fixtures they hold for both ways."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from psql_streamer import batching


def _each_way(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "one by one":
        yield
        return
    with nothing_counts_as_few():
        yield


_WAYS = ["one by one", "by cells"]

both_ways = pytest.fixture(scope="module", autouse=True, params=_WAYS)(_each_way)
"""Every test of the module that imports this runs twice."""

each_way = pytest.fixture(scope="module", params=_WAYS)(_each_way)
"""Those that use it do."""


@contextmanager
def nothing_counts_as_few() -> Iterator[None]:
    kept = batching.FEW_ROWS, batching.FEW_CELLS
    batching.FEW_ROWS = batching.FEW_CELLS = -1
    try:
        yield
    finally:
        batching.FEW_ROWS, batching.FEW_CELLS = kept
