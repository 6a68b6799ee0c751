"""Arrays that are made from a few values: what Arrow makes of them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psql_streamer.binary_columns import list_views, pack_values, read_offsets, read_value_bytes


@given(st.lists(st.none() | st.binary(max_size=20), max_size=40))
def test_a_few_values_make_the_array_that_arrow_makes(values: list[bytes | None]) -> None:
    packed = pack_values(values)
    packed.validate(full=True)
    assert packed.type == pa.binary()
    assert packed.equals(pa.array(values, pa.binary()))
    assert read_value_bytes(packed).tobytes() == b"".join(value or b"" for value in values)
    assert len(read_offsets(packed)) == len(values) + 1


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()], ids=str)
@given(values=st.lists(st.none() | st.binary(max_size=20), max_size=20), begin=st.integers(0, 20))
def test_the_bytes_of_values_are_seen_where_they_are(kind: pa.DataType, values: list[bytes | None], begin: int) -> None:
    views = list_views(pa.array(values, kind)[begin:])
    assert list(map(bytes, views)) == [value or b"" for value in values[begin:]]
