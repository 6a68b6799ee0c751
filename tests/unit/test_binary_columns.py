"""Arrays that are made from a few values: what Arrow makes of them."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from psql_streamer.binary_columns import pack_values, read_offsets, read_value_bytes


@given(st.lists(st.none() | st.binary(max_size=20), max_size=40))
def test_a_few_values_make_the_array_that_arrow_makes(values: list[bytes | None]) -> None:
    packed = pack_values(values)
    packed.validate(full=True)
    assert packed.type == pa.binary()
    assert packed.equals(pa.array(values, pa.binary()))
    assert read_value_bytes(packed).tobytes() == b"".join(value or b"" for value in values)
    assert len(read_offsets(packed)) == len(values) + 1
