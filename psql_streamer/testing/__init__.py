"""Tests of the plug-in contract, for parts of one's own: what psql_streamer.interfaces and psql_streamer.model promise.

A part is tested by a class that says how to make it, which pytest then collects:

    from psql_streamer.testing import SourceContract

    class TestMySource(SourceContract):
        def make_source(self) -> Source: ...
        def make_changes(self) -> None: ...

Rules of a configuration are tried with try_rule.
"""

# ruff: noqa: E402 - pytest has to know of the modules before they are imported

import pkgutil

import pytest

# Without this, failures show no values: pytest rewrites the asserts of test files alone.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))

from psql_streamer.testing.batches import make_batch
from psql_streamer.testing.checking import check_batch
from psql_streamer.testing.formats import FormatContract
from psql_streamer.testing.handlers import HandlerContract
from psql_streamer.testing.rules import RejectedChange, RuleResult, try_rule
from psql_streamer.testing.sinks import SinkContract
from psql_streamer.testing.sources import SourceContract
from psql_streamer.testing.written import WrittenEvent
from psql_streamer.trial.row_lines import RowChange, deleted, inserted, updated

__all__ = [
    "FormatContract",
    "HandlerContract",
    "RejectedChange",
    "RowChange",
    "RuleResult",
    "SinkContract",
    "SourceContract",
    "WrittenEvent",
    "check_batch",
    "deleted",
    "inserted",
    "make_batch",
    "try_rule",
    "updated",
]
