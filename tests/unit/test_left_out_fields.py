"""Fields of documents that a type does not name are counted, however the documents are made."""

from __future__ import annotations

import pyarrow as pa
import pytest

from psql_streamer.spark.left_out import Struct, count_left_out
from psql_streamer.trial.outcome_json import as_json


@pytest.mark.parametrize("depth", [150, 1000, 30_000])
def test_deep_documents_end_nothing(depth: int) -> None:
    shallow, deep = '{"a": 1, "b": 2}', f'{{"a": {"[" * depth}{"]" * depth}}}'
    for documents in ([shallow, deep], [deep], [shallow] * 20 + [deep]):
        found = count_left_out(pa.array(documents), Struct({"a": None}))
        assert found.total() == documents.count(shallow)


def test_a_deep_document_of_an_outcome_is_shown_as_bytes() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    assert set(as_json(deep)) == {"base64"}
