"""The `mysql` source keeps what the plug-in contract promises."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from psql_streamer.interfaces import Source
from psql_streamer.testing import SourceContract
from tests.mariadb import Schema
from tests.mysql_source import source_of


class TestMysqlSource(SourceContract):
    @pytest.fixture(autouse=True)
    def _tables(self, schema: Schema) -> None:
        self._schema = schema
        schema.execute("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, note TEXT)")

    def make_source(self) -> Source:
        return source_of(self._schema)

    def make_changes(self) -> int:
        self._schema.execute(
            "INSERT INTO t (note) SELECT 'n' FROM seq_1_to_3",
            "UPDATE t SET note = CONCAT(note, '.') WHERE id = 1",
            "DELETE FROM t ORDER BY id DESC LIMIT 1",
        )
        return 5

    def list_expected_actions(self) -> Sequence[str]:
        return [*["insert"] * 3, "update", "delete"]
